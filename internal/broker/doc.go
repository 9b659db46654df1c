// Package broker defines queues, and the interface to the brokers that hold them.
//
// Each engine implements Engine in its own package. This package contains their shared code: the configuration of a queue and its
// validation, who enforces which field, the statistics by which workers are scaled, credentials, and classes of errors. It does not
// connect to brokers and does not depend on Kubernetes.
//
// Each queue belongs to a Queue object. The broker stores its owner (QueueOwner), so that two clusters, or two objects, with the same
// queue name do not overwrite each other's configuration.
package broker
