package asynq

// discardLogger is asynq's logger, and writes nothing.
type discardLogger struct{}

// Debug writes nothing.
func (discardLogger) Debug(...any) {}

// Info writes nothing.
func (discardLogger) Info(...any) {}

// Warn writes nothing.
func (discardLogger) Warn(...any) {}

// Error writes nothing.
func (discardLogger) Error(...any) {}

// Fatal writes nothing, and ends nothing.
func (discardLogger) Fatal(...any) {}
