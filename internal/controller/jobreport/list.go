package jobreport

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/report"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// scanJobs counts all Jobs of the namespace as they are now, or none of them.
func (s *Reconciler) scanJobs(ctx context.Context, namespace string, now time.Time) (*report.Aggregator, error) {
	ctx, cancel := context.WithTimeout(ctx, min(maxScanDuration, s.options.Interval))
	defer cancel()
	var tally *report.Aggregator
	err := kube.ForEachJob(ctx, s.live, namespace,
		func() { tally = report.NewAggregator(s.options.MaxFindings) },
		func(job *batchv1.Job) {
			tally.Add(report.Entry{Name: job.Name, UID: job.UID, Finding: zombie.Classify(job, now, s.options.Thresholds)})
		})
	return tally, err
}
