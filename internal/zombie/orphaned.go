package zombie

import batchv1 "k8s.io/api/batch/v1"

// checkOrphaned finds Jobs whose CronJob was deleted or disowned them: no history limit applies
// to them any more.
func checkOrphaned(f *jobFacts) (Finding, bool) {
	scheduled, found := f.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if !found || f.hasController() || f.isDeleted() {
		return Finding{}, false
	}
	return suspiciousFinding(f.creationTime(), ReasonOrphaned, "CronJob", "created by a CronJob for %s, but has no controller", scheduled)
}
