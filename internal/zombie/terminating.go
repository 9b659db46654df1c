package zombie

import "strings"

// checkStuckTerminating finds Jobs that were deleted and are held by a finalizer.
func checkStuckTerminating(f *jobFacts) (Finding, bool) {
	if !f.isDeleted() {
		return Finding{}, false
	}
	since, cause, held := f.DeletionTimestamp.Time, "", "by no finalizer"
	if len(f.Finalizers) > 0 {
		cause = f.Finalizers[0]
		held = "by " + strings.Join(f.Finalizers, ", ")
	}
	return f.findingByAge(f.thresholds.StuckTerminating, since, ReasonStuckTerminating, cause, "deleted at %s, and held %s", formatTime(since), held)
}
