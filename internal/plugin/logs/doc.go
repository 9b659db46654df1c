// Package logs prints the logs of a SequentialJob's steps in order, and of the attempts of an AgenticSession's runner.
//
// Functions of the objects alone decide which logs exist (container_logs.go, session_streamer.go). A log that no longer exists is
// reported, never omitted silently.
package logs
