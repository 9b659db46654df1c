package jobreport

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/report"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// pageSize is how many Jobs are listed at once.
const pageSize = 500

// maxRestarts is how often a list is begun again whose continue token has expired.
const maxRestarts = 1

// tally counts all Jobs of the namespace as they are now, or none of them.
func (s *Scanner) tally(ctx context.Context, namespace string, now time.Time) (*report.Tally, error) {
	ctx, cancel := context.WithTimeout(ctx, min(maxScan, s.options.Interval))
	defer cancel()
	for restarts := 0; ; restarts++ {
		tally, err := s.pages(ctx, namespace, now)
		// The rest of an expired list could be had, but of another time than its
		// beginning: Jobs would be missing, or there twice.
		if apierrors.IsResourceExpired(err) && restarts < maxRestarts {
			continue
		}
		return tally, err
	}
}

// pages goes through the list. Of each page only rows are kept.
func (s *Scanner) pages(ctx context.Context, namespace string, now time.Time) (*report.Tally, error) {
	tally := report.NewTally(s.options.Top)
	token := ""
	for page := 0; ; page++ {
		// Without a resourceVersion: with "0" the API server ignores the limit.
		list := &batchv1.JobList{}
		err := s.live.List(ctx, list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(token))
		if err != nil {
			return nil, &listError{pages: page, err: err}
		}
		for i := range list.Items {
			job := &list.Items[i]
			tally.Add(report.Row{Name: job.Name, UID: job.UID, Finding: zombie.Classify(job, now, s.options.Thresholds)})
		}
		if token = list.Continue; token == "" {
			return tally, nil
		}
	}
}
