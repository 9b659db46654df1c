package zombie

import batchv1 "k8s.io/api/batch/v1"

// checkOrphaned finds Jobs of a CronJob that is gone, or that has let go of them: its history
// limits do not reach them any more.
func checkOrphaned(f *jobFacts) (Finding, bool) {
	scheduled, found := f.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if !found || f.hasController() || f.isDeleted() {
		return Finding{}, false
	}
	return suspiciousFinding(f.creationTime(), ReasonOrphaned, "CronJob", "made by a CronJob for %s, and belongs to none", scheduled)
}
