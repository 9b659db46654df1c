package controller

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/kube/joblist"
)

// maxScanDuration bounds the scan of one namespace, together with the interval.
const maxScanDuration = 2 * time.Minute

// scanJobs classifies all Jobs of the namespace. An error is also the scan's Failure.
func (r *Reconciler) scanJobs(ctx context.Context, namespace string) (jobreport.Scan, error) {
	ctx, cancel := context.WithTimeout(ctx, min(maxScanDuration, r.options.Interval))
	defer cancel()
	scan := jobreport.Scan{StartTime: r.clock.Now(), Thresholds: r.options.Thresholds}
	err := joblist.ForEach(ctx, r.live, namespace,
		func() { scan.Jobs = jobreport.NewAggregator(r.options.MaxFindings) },
		func(job *batchv1.Job) { scan.Jobs.Add(jobreport.NewEntry(job, scan.StartTime, r.options.Thresholds)) })
	scan.Duration = r.clock.Since(scan.StartTime)
	if err != nil {
		scan.Failure = new(scanFailure(err))
		return scan, err
	}
	scanDurationSeconds.Observe(scan.Duration.Seconds())
	return scan, nil
}

func (r *Reconciler) observe(ctx context.Context, namespace string, scan jobreport.Scan) (jobreport.Observation, error) {
	stored := &v1alpha1.JobReport{}
	stored.Namespace, stored.Name = namespace, v1alpha1.JobReportName
	if err := client.IgnoreNotFound(r.live.Get(ctx, client.ObjectKeyFromObject(stored), stored)); err != nil {
		return jobreport.Observation{}, fmt.Errorf("reading the JobReport: %w", err)
	}
	return jobreport.Observation{Report: stored, Scan: scan, ExportEnabled: r.options.OpenReports, Now: r.clock.Now()}, nil
}
