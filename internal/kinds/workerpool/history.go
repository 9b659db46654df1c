package workerpool

import (
	"encoding/json"
	"time"
)

// History is the progress of a revision's rollout. It is stored as an annotation of the
// revision itself, so it survives a restart of the operator and is deleted with the revision.
type History struct {
	// CanaryStep is the index of the present canary step, and StepReached the time since when
	// it has enough workers; zero if it does not have them.
	CanaryStep  int       `json:"step,omitempty"`
	StepReached time.Time `json:"stepReached,omitzero"`
	// ProvenWorkers is the highest number of proven workers so far, LastProgress the time of its
	// last increase.
	ProvenWorkers int32     `json:"provenWorkers,omitempty"`
	LastProgress  time.Time `json:"lastProgress,omitzero"`
	// FailureMessage explains why the rollout of the revision failed; empty if it did not.
	FailureMessage string `json:"failure,omitempty"`
}

// ParseHistory parses the annotation. An invalid annotation counts as none.
func ParseHistory(annotation string) History {
	var history History
	if json.Unmarshal([]byte(annotation), &history) != nil {
		return History{}
	}
	return history
}

// String returns the annotation; empty if the history is.
func (h History) String() string {
	if h == (History{}) {
		return ""
	}
	raw, err := json.Marshal(h)
	if err != nil { // impossible: times and strings can always be marshaled
		return ""
	}
	return string(raw)
}
