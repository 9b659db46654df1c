// Package sessionarchive keeps what Pods wrote after they are deleted, in a claim or in an object store.
//
// The transcript of a session's attempt: the runner writes it into a socket, and a container of its own, which alone has the
// credentials, stores it. The logs of a SequentialJob's steps: a Job reads them from the API server when a run has ended.
package sessionarchive
