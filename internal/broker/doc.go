// Package broker says what a queue is to be, and what a broker can be asked about it.
//
// Each engine has a package of its own that implements Engine. This package has what
// they share: the wanted Queue and its rules, who keeps to which of its fields, the
// figures that workers are scaled by, and the classes of failure. It talks to no broker,
// and knows nothing of Kubernetes.
//
// A queue belongs to one Queue object. The broker itself remembers to which (Owner), so
// that two clusters, or two objects, that name the same queue do not undo each other's
// work without end.
package broker
