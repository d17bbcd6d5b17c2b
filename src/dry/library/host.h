// What the host does between two pieces of work, counted and not timed, so that two runs of a program count the same: operations that PyTorch's
// dispatcher was asked for, nodes that autograd ran, functions that Python called. What the observer itself does is left out.
#pragma once

namespace headroom::dry {

// The calling thread is about to give the card work, to wait, or to say something: what it did since it last did so goes into the record.
void host_worked();

}  // namespace headroom::dry
