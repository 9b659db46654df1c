package asynq

// discardLogger discards log messages of asynq. Their errors are returned to callers.
type discardLogger struct{}

// Debug discards the message.
func (discardLogger) Debug(...any) {}

// Info discards the message.
func (discardLogger) Info(...any) {}

// Warn discards the message.
func (discardLogger) Warn(...any) {}

// Error discards the message.
func (discardLogger) Error(...any) {}

// Fatal discards the message and does not exit.
func (discardLogger) Fatal(...any) {}
