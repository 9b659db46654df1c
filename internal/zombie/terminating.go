package zombie

import "strings"

// checkStuckTerminating finds deleted Jobs that a finalizer keeps.
func checkStuckTerminating(f *jobFacts) (Finding, bool) {
	if !f.isDeleted() {
		return Finding{}, false
	}
	since, cause, finalizers := f.DeletionTimestamp.Time, "", "none"
	if len(f.Finalizers) > 0 {
		cause, finalizers = f.Finalizers[0], strings.Join(f.Finalizers, ", ")
	}
	return f.findingByAge(since, ReasonStuckTerminating, cause, "deleted at %s but still exists; finalizers: %s", formatTime(since), finalizers)
}
