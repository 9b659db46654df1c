package zombie

import "strings"

// stuckTerminating finds Jobs that were deleted and are held by a finalizer.
func stuckTerminating(f *facts) (Finding, bool) {
	if !f.deleted() {
		return Finding{}, false
	}
	since, cause, held := f.DeletionTimestamp.Time, "", "by no finalizer"
	if len(f.Finalizers) > 0 {
		cause = f.Finalizers[0]
		held = "by " + strings.Join(f.Finalizers, ", ")
	}
	return f.grown(f.thresholds.StuckTerminating, since, StuckTerminating, cause, "deleted at %s, and held %s", format(since), held)
}
