package zombie

import batchv1 "k8s.io/api/batch/v1"

// orphaned finds Jobs of a CronJob that is gone, or that has let go of them: its history
// limits do not reach them any more.
func orphaned(f *facts) (Finding, bool) {
	scheduled, found := f.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if !found || f.controlled() || f.deleted() {
		return Finding{}, false
	}
	return suspicious(f.created(), Orphaned, "CronJob", "made by a CronJob for %s, and belongs to none", scheduled)
}
