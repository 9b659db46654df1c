package view

// LogCommand is the command that follows the log of a step of a sequence, or of a session; nil for other kinds.
func LogCommand(e *Entry, step string) []string {
	flags := []string{"logs", "--follow", "--tail=500", "--color=never"}
	switch e.Kind {
	case Sequences:
		if step != "" {
			flags = append(flags, "--step="+step)
		}
		return objectArgs(e, flags...)
	case Sessions:
		return objectArgs(e, flags...)
	default:
		return nil
	}
}
