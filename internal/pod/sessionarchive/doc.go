// Package sessionarchive stores output of Pods in a claim or in an object store, so that it outlives them.
//
// Transcripts of a session's attempts: the runner writes a transcript into a socket, and a separate container, which alone has the
// credentials, stores it. Logs of a SequentialJob's steps: a Job reads them from the API server when a run has ended.
package sessionarchive
