// Package fuzz runs the operator, as a process of its own with its webhooks, against objects of all
// kinds that are generated from the schemas of the CustomResourceDefinitions. Most objects are
// valid, and some contain hostile values. It needs the KUBECONFIG of a real API server, and no other
// operator may run there.
//
//	FUZZ_SEED=7            repeats the objects of an earlier run
//	SOAK_DURATION=30m      repeats rounds for this time (make soak)
package fuzz
