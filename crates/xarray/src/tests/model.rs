//! Every interleaving of a few calls, by the model checker; nodes have four slots there.
