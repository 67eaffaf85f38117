"""What a report holds besides cells: the worst legal networks that attacks find, and what the solver proves."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.load import is_user_sender
from ccenv.attacks import attack
from ccenv.benchmarks.cells.players import Player, sender_of
from ccenv.base.document import Format, hash_of
from ccenv.base.errors import CcenvError, NoEncodingError
from ccenv.base.provenance import code_hash
from ccenv.benchmarks.rfc9743.criteria import Proof, WorstCase

FORMAT = Format("ccenv-report-further", 1, "what a report found besides cells", older="--fresh starts anew")
FURTHER = "further.json"
NO_CODE = "a Python file has no encoding for the solver (docs/verification.md)"
SEED = 0


class Further:
    """Answers that are kept in a folder, each under a hash of everything that decides it."""

    def __init__(self, folder: FilePath, player: Player) -> None:
        self.folder, self.player = folder, player
        file = folder / FURTHER
        self.known: dict[str, Any] = FORMAT.read(file).get("answers", {}) if file.exists() else {}

    def worst_case(self, asked: WorstCase, broken: str) -> dict[str, Any]:
        """Attack the sender; ``why`` says what stood in the way. A sender that fails (``broken``) is not attacked."""
        about = {"scene": asked.scene, "budget_flow_steps": asked.flow_steps, "seed": SEED}
        if broken:
            return {**about, "why": broken}
        return self._kept({**about, "code": code_hash(attack)}, lambda: {**about, **self._attack(asked)})

    def proof(self, asked: Proof, limit_s: float) -> dict[str, Any]:
        """Ask the solver; ``why`` says what stood in the way."""
        about = asked.model_dump()
        if is_user_sender(self.player.spec):
            return {**about, "why": NO_CODE}
        from ccenv.proofs.claims.ask import verify

        key = {**about, "limit_s": limit_s, "code": code_hash(verify)}
        return self._kept(key, lambda: {**about, **self._prove(asked, limit_s)})

    def _kept(self, key: dict[str, Any], find: Any) -> dict[str, Any]:
        name = hash_of({**key, "sender": self.player.sha256})[:32]
        if name not in self.known:
            self.known[name] = find()
            FORMAT.write(self.folder / FURTHER, {"answers": dict(sorted(self.known.items()))})
        found: dict[str, Any] = self.known[name]
        return found

    def _attack(self, asked: WorstCase) -> dict[str, Any]:
        try:
            result = attack(sender_of(self.player), path=asked.scene, budget_flow_steps=asked.flow_steps, seed=SEED)
        except CcenvError as error:
            return {"why": str(error)}
        path = result.scene.path
        return {
            "worst_utilisation": result.worst_utilisation,
            "adversary": result.worst_adversary,
            "legal": result.legal,
            "model": result.scene.model,
            "link_rate_Bps": path.link_rate_Bps,
            "buffer_bytes": path.buffer_bytes,
            "rtt_s": path.flows[0].rtt_s,
            "jitter_s": path.flows[0].jitter_s,
        }

    def _prove(self, asked: Proof, limit_s: float) -> dict[str, Any]:
        try:
            from ccenv.proofs.claims.ask import verify

            answer = verify(
                self.player.spec,
                asked.claim,
                model=asked.model,
                buffer=asked.buffer,
                samples=asked.samples,
                at_least=asked.at_least,
                time_limit=limit_s,
                out=self.folder / "counterexamples",
            )
        except (NoEncodingError, CcenvError) as error:
            return {"why": str(error)}
        return {"verdict": answer["verdict"], "setting": answer["setting_name"], "reason": answer.get("reason", "")}
