"""The interface of policies: tables of signals, actions and reward terms, each with its compiled formula."""
