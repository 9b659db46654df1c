package broker

// History is what happened to a message in its earlier deliveries. A delivery that was not answered is lost: the process of the worker ended,
// or its lease expired. A loss says nothing about the message, because all messages of a process are lost together. Only a message that was
// lost while its process had no other is known to have caused it.
type History struct {
	// Released is the number of deliveries that were given back without an attempt, and Failed that of failed attempts.
	Released, Failed int
	// Lost is the number of all lost deliveries. A message that was lost before is marked when it starts again: LostStarted of the losses
	// began so, beside other messages, and LostAlone without other messages.
	Lost, LostStarted, LostAlone int
}

// Attempt returns the number of the next attempt, starting at 1. Losses count once the message was lost alone: the earlier ones were then
// its own doing, too.
func (h History) Attempt() int {
	if h.LostAlone > 0 {
		return 1 + h.Failed + h.Lost
	}
	return 1 + h.Failed
}

// IsSuspect reports whether the message may end its process, so that it must run without others. A message that only waited in a process
// that was lost is not a suspect.
func (h History) IsSuspect() bool { return h.LostStarted+h.LostAlone > 0 }

// AfterStart returns the history if a delivery that starts now is lost.
func (h History) AfterStart(alone bool) History {
	h.Lost++
	if alone {
		h.LostAlone++
	} else {
		h.LostStarted++
	}
	return h
}

// AfterFailure returns the history if the attempt has failed.
func (h History) AfterFailure() History {
	h.Failed++
	return h
}

// AfterRelease returns the history if the message is given back without an attempt.
func (h History) AfterRelease() History {
	h.Released++
	return h
}
