// Package broker defines queues, and the interface to the brokers that hold them.
//
// Each engine implements Engine in its own package. This package contains what they share:
// the configuration of a queue and its validation, who enforces which field, the statistics
// that workers are scaled by, credentials, and classes of errors. It does not connect to
// brokers and does not depend on Kubernetes.
//
// Each queue belongs to one Queue object. The broker stores which one (QueueOwner), so that
// two clusters, or two objects, that name the same queue do not overwrite each other's
// configuration again and again.
package broker
