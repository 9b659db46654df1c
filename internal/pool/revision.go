package pool

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Past is what a revision has been through. It is kept on the revision itself, so that it
// outlives the process and goes with it.
type Past struct {
	// Step of a canary, and since when it is reached; zero as long as it is not.
	Step    int       `json:"step,omitempty"`
	Reached time.Time `json:"reached,omitzero"`
	// Proven workers there were at most, and since when.
	Proven     int32     `json:"proven,omitempty"`
	Progressed time.Time `json:"progressed,omitzero"`
	// Failed is why the revision is not rolled out any further.
	Failed string `json:"failed,omitempty"`
}

// ReadPast reads an annotation. One that somebody broke is as good as none.
func ReadPast(annotation string) Past {
	var p Past
	if json.Unmarshal([]byte(annotation), &p) != nil {
		return Past{}
	}
	return p
}

// String is the annotation; empty if there is nothing to keep.
func (p Past) String() string {
	if p == (Past{}) {
		return ""
	}
	raw, err := json.Marshal(p)
	if err != nil { // times and texts always marshal
		return ""
	}
	return string(raw)
}

// hash of what the spec's workers are made from: all of it but the limits, which they
// read from a file. What kind of workload they run in is part of it.
func (d *decision) hash(t *corev1.PodTemplateSpec) string {
	return HashOf(struct {
		Template *corev1.PodTemplateSpec
		Workload v1alpha1.Workload
	}{t, d.in.Pool.Spec.Workload})
}
