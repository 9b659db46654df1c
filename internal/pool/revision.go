package pool

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// History is what a revision has been through. It is kept on the revision itself, so that it
// outlives the process and goes with it.
type History struct {
	// CanaryStep of a canary, and since when it is reached; zero as long as it is not.
	CanaryStep  int       `json:"step,omitempty"`
	StepReached time.Time `json:"reached,omitzero"`
	// ProvenWorkers workers there were at most, and since when.
	ProvenWorkers int32     `json:"proven,omitempty"`
	LastProgress  time.Time `json:"progressed,omitzero"`
	// FailureMessage is why the revision is not rolled out any further.
	FailureMessage string `json:"failed,omitempty"`
}

// ParseHistory reads an annotation. One that somebody broke is as good as none.
func ParseHistory(annotation string) History {
	var p History
	if json.Unmarshal([]byte(annotation), &p) != nil {
		return History{}
	}
	return p
}

// String is the annotation; empty if there is nothing to keep.
func (p History) String() string {
	if p == (History{}) {
		return ""
	}
	raw, err := json.Marshal(p)
	if err != nil { // times and texts always marshal
		return ""
	}
	return string(raw)
}

// templateHash of what the spec's workers are made from: all of it but the limits, which they
// read from a file. What kind of workload they run in is part of it.
func (d *evaluation) templateHash(t *corev1.PodTemplateSpec) string {
	return HashJSON(struct {
		Template *corev1.PodTemplateSpec
		Workload v1alpha1.Workload
	}{t, d.observation.Pool.Spec.Workload})
}
