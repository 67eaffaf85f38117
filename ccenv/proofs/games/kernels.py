"""Compiled parts of the solver: what a step does to a path, all boards and moves of a game, and sweeps over them.

A path of the belief set has a level: minus its queue, or its tokens (CCAC), and what is due: with D = 2 packets that the jitter
box must deliver in the next step, on ``ideal`` what each of the last Rm - 1 steps served (digits in base C + 1). A board is the
set of such tuples as bits, with the packets in flight and, with late feedback, what is sent already.
``tests/oracles/slow_games.py`` says the same by replay of whole histories.
"""

from __future__ import annotations

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.beliefs import at, flow_rings, update_beliefs, update_queue_bound
from ccenv.engine.compiled.calls import load
from ccenv.engine.curve.transport import acknowledge

CCAC = 2
RATE, BUFFER, LEVEL, DUE, DELAY, BASE = range(6)
"""Columns of the table of tuples; the tuple of a level and of what is due has the place BASE + level * ages + due."""
NEVER = 1 << 29
OPTIMAL, DRAWN, GIVEN = 0, 1, 2
"""How the network answers: one of the worst answers, any answer, or the one that is given."""


@kernel(inline="always")
def step(model, jitter, path, inflight, sent):
    """Return what a step can do to a tuple: lost, fewest and most delivered, lowest and highest level, served and held before."""
    rate, buffer, level = path[RATE], path[BUFFER], path[LEVEL]
    if model == CCAC:
        left = level + rate - sent
        lost = max(0, -buffer - left)
        left = max(left, -buffer)
        whole = inflight + sent - lost
        low = left if left <= 0 else 0  # tokens that are not used may be wasted
        return lost, min(whole, max(0, level + inflight)), whole + min(0, left), low, min(left, rate), 0
    queue = sent - level
    served = min(rate, queue)
    lost = max(0, queue - served - buffer)
    after = served + lost - queue
    held = inflight + level
    if jitter == 0:
        pipe, span = path[DUE] * (rate + 1) + served, (rate + 1) ** (path[DELAY] - 1)
        return lost, pipe // span, pipe // span, after, after, pipe // span + pipe % span
    return lost, (held if jitter == 1 else path[DUE]), held + served, after, after, held


@kernel(inline="always")
def digest(bits, inflight, pending):
    h = np.uint64(1469598103934665603)
    for w in range(bits.shape[0]):
        h = (h ^ bits[w]) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
    h = (h ^ np.uint64(inflight * 512 + pending)) * np.uint64(1099511628211)
    return h ^ (h >> np.uint64(31))


@kernel
def find(table, bits, inflight, pending, found, then, following):
    """Return where a board lies in the table of boards, or the free place where it belongs."""
    place = np.int64(digest(found, then, following) & np.uint64(table.shape[0] - 1))
    while table[place] >= 0:
        c, w = table[place], 0
        while w < found.shape[0] and bits[c, w] == found[w]:
            w += 1
        if w == found.shape[0] and inflight[c] == then and pending[c] == following:
            break
        place = (place + 1) & (table.shape[0] - 1)
    return place


@kernel
def larger(array):
    """Return an array of twice the length that begins with the given one; a loop compiles faster than a slice."""
    longer = np.empty(2 * array.shape[0], array.dtype)
    for k in range(array.shape[0]):
        longer[k] = array[k]
    return longer


@kernel
def put(board, rows, i):
    """Write a board's words into row i; a loop, as above."""
    for w in range(board.shape[0]):
        rows[i, w] = board[w]


@kernel
def members(bits, tuples, out):
    n = 0
    for t in range(tuples.shape[0]):
        if (bits[t >> 6] >> np.uint64(t & 63)) & np.uint64(1):
            out[n] = t
            n += 1
    return n


@kernel
def safe(model, jitter, tuples, chosen, n, inflight, sent, cap, allowed):
    """Return whether sending so much breaks no allowance and no cap, whichever of n tuples is true."""
    for m in range(n):
        path = tuples[chosen[m]]
        lost, fewest, _, _, _, _ = step(model, jitter, path, inflight, sent)
        if lost > allowed[path[RATE]] or inflight + sent - lost - fewest > cap:
            return False
    return True


@kernel(nogil=True)
def explore(model, jitter, late, tuples, ages, start, started, most_sent, cap, allowed, most_boards, most_edges):
    """Find all boards that play can reach and all moves between them.

    ``model`` is a place in ``ccenv.proofs.games.boards.MODELS``; jitter, late, cap and allowed are fields of a game; ``ages`` is
    how many values ``due`` has, ``start`` the bits of the first board and ``started`` the packets in flight there. It gives up at
    most_boards or most_edges.

    Returns the numbers of boards (0: it gave up), actions and edges, less than the lengths of the arrays; and as arrays bits,
    packets in flight and packets sent already of each board, its first action, the first edge of each action (actions of a board
    are 0, 1, 2, ...), and packets delivered and lost, and the next board, of each edge.
    """
    width, spread = start.shape[0], cap + most_sent + 1
    bits = np.empty((1024, width), np.uint64)
    inflight, pending = np.zeros(1024, np.int16), np.zeros(1024, np.int16)
    first_action = np.zeros(1025, np.int64)
    first_edge = np.zeros(4096, np.int64)
    delivered, lost, target = np.empty(65536, np.uint8), np.empty(65536, np.uint8), np.empty(65536, np.int32)
    table = np.full(4096, -1, np.int32)
    bucket = np.zeros((spread * spread, width), np.uint64)
    marked, touched = np.zeros(spread * spread, np.uint8), np.zeros(spread * spread, np.int64)
    chosen, next_chosen = np.zeros(tuples.shape[0], np.int64), np.zeros(tuples.shape[0], np.int64)
    put(start, bits, 0)
    inflight[0] = started
    table[np.int64(digest(start, started, 0) & np.uint64(table.shape[0] - 1))] = 0
    boards, actions, edges, i = 1, 0, 0, 0
    while i < boards:
        n = members(bits[i], tuples, chosen)
        first_action[i] = actions
        for sent in range(pending[i] if late else 0, pending[i] + 1 if late else most_sent + 1):
            if not late and not safe(model, jitter, tuples, chosen, n, inflight[i], sent, cap, allowed):
                break
            kinds = 0
            for m in range(n):
                path = tuples[chosen[m]]
                gone, fewest, most, low, high, held = step(model, jitter, path, inflight[i], sent)
                lowest = path[BASE] + low * ages
                for s in range(fewest, most + 1):
                    key = gone * spread + s
                    if marked[key] == 0:
                        marked[key] = 1
                        touched[kinds] = key
                        kinds += 1
                        bucket[key] = np.uint64(0)
                    place = lowest + (max(0, held - s) if ages > 1 else 0)
                    for _ in range(low, high + 1):
                        bucket[key, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
                        place += ages
            for following in range(most_sent + 1 if late else 1):
                good = True  # what follows is chosen before the sender sees which of the answers it is
                for k in range(kinds if late else 0):
                    m = members(bucket[touched[k]], tuples, next_chosen)
                    then = inflight[i] + sent - touched[k] // spread - touched[k] % spread
                    good = good and safe(model, jitter, tuples, next_chosen, m, then, following, cap, allowed)
                if not good:
                    break
                if actions + 2 > first_edge.shape[0]:
                    first_edge = larger(first_edge)
                first_edge[actions] = edges
                if boards + kinds > most_boards or (edges + kinds > target.shape[0] and 2 * target.shape[0] > most_edges):
                    return 0, 0, 0, bits, inflight, pending, first_action, first_edge, delivered, lost, target
                for k in range(kinds):
                    key = touched[k]
                    found, then = bucket[key], inflight[i] + sent - key // spread - key % spread
                    place = find(table, bits, inflight, pending, found, then, following)
                    j = table[place]
                    if j < 0:
                        if boards == inflight.shape[0]:
                            fewer, bits = bits, np.empty((2 * boards, width), np.uint64)
                            for b in range(boards):
                                put(fewer[b], bits, b)
                            inflight, pending, first_action = larger(inflight), larger(pending), larger(first_action)
                        if 3 * boards > table.shape[0]:
                            table = np.full(2 * table.shape[0], -1, np.int32)
                            for b in range(boards):
                                table[find(table, bits, inflight, pending, bits[b], inflight[b], pending[b])] = b
                            place = find(table, bits, inflight, pending, found, then, following)
                        j = boards
                        table[place] = j
                        put(found, bits, j)
                        inflight[j], pending[j] = then, following
                        boards += 1
                    if edges == target.shape[0]:
                        delivered, lost, target = larger(delivered), larger(lost), larger(target)
                    delivered[edges], lost[edges], target[edges] = key % spread, key // spread, j
                    edges += 1
                actions += 1
            for k in range(kinds):
                marked[touched[k]] = 0
        i += 1
    first_action[boards] = actions
    first_edge[actions] = edges
    return boards, actions, edges, bits, inflight, pending, first_action, first_edge, delivered, lost, target


@kernel(nogil=True)
def sweep(first_action, first_edge, delivered, target, before, after):
    """Go one step back: the least over actions of the largest over observations of what is left less what is delivered."""
    for i in range(after.shape[0]):
        best = NEVER
        for k in range(first_action[i], first_action[i + 1]):
            worst = -NEVER
            for e in range(first_edge[k], first_edge[k + 1]):
                cost = before[target[e]] - np.int32(delivered[e])
                if cost > worst:
                    worst = cost
                    if worst >= best:
                        break
            best = min(best, worst)
        after[i] = best


@kernel(nogil=True)
def play(graph, table, fastest, answer, keys, steps, board, sent, given, reward, error, loss):
    """Take one step of many runs of a game.

    ``graph`` is first_action, first_edge, delivered, lost, target; ``table`` the cost by steps left and board; ``answer``
    OPTIMAL, DRAWN or GIVEN (then the answers are ``given``); keys (B, 3) are seed, environment and episode. ``steps`` and
    ``board`` change; a run whose steps are taken stays as it is, and of a number that is not legal none is sent. Out go
    ``reward``, packets delivered less what C_U t grew by, whose sum is minus the regret; ``error``, packets by which the decision
    is worse than the best; and packets lost.
    """
    first_action, first_edge, delivered, lost, target = graph
    horizon = table.shape[0] - 1
    for b in range(board.shape[0]):
        reward[b], error[b], loss[b] = 0.0, 0.0, 0.0
        left = horizon - steps[b]
        if left <= 0:
            continue
        i = board[b]
        action = first_action[i] + (sent[b] if 0 <= sent[b] < first_action[i + 1] - first_action[i] else 0)
        first, last = first_edge[action], first_edge[action + 1]
        worst, ties = -NEVER, 0
        for e in range(first, last):
            cost = table[left - 1, target[e]] - np.int32(delivered[e])
            if cost > worst:
                worst, ties = cost, 0
            if cost == worst:
                ties += 1
        if answer == GIVEN:
            chosen = first + max(0, min(given[b], last - first - 1))
        else:
            draw = uniform(keys[b, 0], keys[b, 1], keys[b, 2], float(steps[b]))
            chosen = first + np.int64(draw * (last - first))
            if answer == OPTIMAL:
                place = np.int64(draw * ties)
                for e in range(first, last):
                    if table[left - 1, target[e]] - np.int32(delivered[e]) == worst:
                        if place == 0:
                            chosen = e
                            break
                        place -= 1
        error[b] = worst - table[left, i]
        loss[b] = lost[chosen]
        j = target[chosen]
        reward[b] = np.int64(delivered[chosen]) + fastest[i] * steps[b] - fastest[j] * (steps[b] + 1)
        board[b] = j
        steps[b] += 1


@kernel(nogil=True)
def raise_credit(graph, side, share, of, cap, credit):
    """Raise credit to the least with which a side keeps its share; False where it passes the cap.

    ``side`` 1: the sender keeps of * delivered >= share * fastest; -1: the network keeps it <= that. The network's least over
    answers of the largest need is the sender's rule with all signs turned.
    """
    first_action, first_edge, delivered, target, fastest = graph
    changed = True
    while changed:
        changed = False
        for i in range(credit.shape[0] - 1, -1, -1):
            if credit[i] >= cap:
                continue
            best = NEVER * of
            for k in range(first_action[i], first_action[i + 1]):
                worst = -best
                for e in range(first_edge[k], first_edge[k + 1]):
                    j = target[e]
                    need = cap
                    if credit[j] < cap:
                        need = max(0, min(cap, credit[j] + side * (share * fastest[j] - of * delivered[e])))
                    worst = max(worst, side * need)
                    if worst >= best:
                        break
                best = min(best, worst)
            if side * best > credit[i]:
                credit[i] = side * best
                changed = True
        if credit[0] >= cap:
            return False
    return True


@kernel
def hear(flows, rings_at, mask, n, sent, env, settings, reciprocals_at):
    """Let flows hear what step n brought, in proof timing: the engine's own bookkeeping of delays and bounds.

    The rings of each of (R,) flows, of length mask + 1, lie one after the other from the address ``rings_at`` on; ``sent`` are
    the packets of the step; env, settings and reciprocals are the engine's records.
    """
    for r in range(flows.shape[0]):
        fl, rings = flows[r], flow_rings(rings_at, 5 * r * (mask + 1), mask)
        acknowledge(env, fl, 0, rings, n, n, 1.0, 0.0)
        update_beliefs(fl, rings, n, 1.0, 1.0, 1.0, 0.0, True, settings, reciprocals_at)
        held = load(rings_at, at(rings.e_at, n, mask)) - load(rings_at, at(rings.s_at, n, mask))
        update_queue_bound(fl, sent[r], held, 1.0)
