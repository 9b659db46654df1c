package asynq

// mute is asynq's logger, and writes nothing.
type mute struct{}

// Debug writes nothing.
func (mute) Debug(...any) {}

// Info writes nothing.
func (mute) Info(...any) {}

// Warn writes nothing.
func (mute) Warn(...any) {}

// Error writes nothing.
func (mute) Error(...any) {}

// Fatal writes nothing, and ends nothing.
func (mute) Fatal(...any) {}
