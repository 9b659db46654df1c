package jobreport

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/report"
)

// maxRecordDuration is the longest that storing a report may take.
const maxRecordDuration = 30 * time.Second

// recordRetryInterval is how long after a failure it is tried again.
const recordRetryInterval = time.Second

// storeScan stores what a scan found, if that is worth a write.
func (s *Reconciler) storeScan(ctx context.Context, namespace string, tally *report.Aggregator, began time.Time, took time.Duration) error {
	stored, err := s.store(ctx, namespace, nil, func(before v1alpha1.JobReportStatus) v1alpha1.JobReportStatus {
		return report.StatusAfterScan(before, tally, began, took)
	})
	if err != nil {
		return err
	}
	recordScanMetrics(namespace, &stored.Status.Summary, began)
	s.exportReport(ctx, stored)
	return nil
}

// storeFailure stores that a scan failed, and why it did.
func (s *Reconciler) storeFailure(ctx context.Context, namespace string, cause error) error {
	stored, err := s.store(ctx, namespace, cause, func(before v1alpha1.JobReportStatus) v1alpha1.JobReportStatus {
		return report.StatusAfterFailure(before, scanFailure(cause), s.clock.Now())
	})
	if err != nil {
		return err
	}
	s.exportReport(ctx, stored)
	return nil
}

// store makes the report's next status from its last, and writes it if that is due. It
// returns the report as it is stored then. While the API server is away it tries again:
// a scan that fails because of that, which is then the cause, should be told of.
func (s *Reconciler) store(ctx context.Context, namespace string, cause error, next func(v1alpha1.JobReportStatus) v1alpha1.JobReportStatus) (*v1alpha1.JobReport, error) {
	ctx, cancel := context.WithTimeout(ctx, maxRecordDuration)
	defer cancel()
	wasAway := cause != nil && !isAPIStatus(cause)
	for {
		stored, err := s.write(ctx, namespace, next)
		if err == nil {
			return stored, nil
		}
		wasAway = wasAway || !isAPIStatus(err)
		if again := isRetriable(err) || wasAway && isForbidden(err); !again || !s.pause(ctx) {
			if isInaccessible(err) {
				deleteJobCounts(namespace)
			}
			return nil, err
		}
	}
}

// pause waits until it is time to try again. It returns false if there is none left.
func (s *Reconciler) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.clock.After(recordRetryInterval):
		return true
	}
}

// isAPIStatus reports whether an error is what the API server has said, and not that it said nothing.
func isAPIStatus(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

// isRetriable reports whether an error is likely to be over soon: the API server did not
// answer, has too much to do, or has a newer version of the report.
func isRetriable(err error) bool {
	return !isAPIStatus(err) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// isForbidden reports whether there is no permission. An API server that has just come back
// says so too, until it knows all Roles.
func isForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isInaccessible reports whether there is no report to be had in the namespace: it is gone or
// goes, and with it the Role, or only that does. What was counted there is then not known
// to be there still.
func isInaccessible(err error) bool { return isNamespaceNotFound(err) || apierrors.IsForbidden(err) }

// write reads the report, and writes its next status if that is due.
func (s *Reconciler) write(ctx context.Context, namespace string, next func(v1alpha1.JobReportStatus) v1alpha1.JobReportStatus) (*v1alpha1.JobReport, error) {
	before := &v1alpha1.JobReport{}
	before.Namespace, before.Name = namespace, v1alpha1.JobReportName
	err := s.live.Get(ctx, client.ObjectKeyFromObject(before), before)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	missing := err != nil

	status := next(before.Status)
	if !s.options.OpenReports {
		status = report.StatusWithoutExport(status)
	}
	decision := report.CompareStatus(namespace, &before.Status, &status)
	if decision == report.DecisionUnchanged && !missing {
		writesTotal.WithLabelValues(string(decision)).Inc()
		return before, nil
	}
	if missing {
		if err := s.client.Create(ctx, before); err != nil {
			writesTotal.WithLabelValues(writeResultFailed).Inc()
			return nil, fmt.Errorf("creating the report: %w", err)
		}
	}
	after, err := s.patch(ctx, before, status)
	if err != nil {
		writesTotal.WithLabelValues(writeResultFailed).Inc()
		return nil, err
	}
	writesTotal.WithLabelValues(string(decision)).Inc()
	return after, nil
}

// patch writes the next status over the report, and tells what has changed.
func (s *Reconciler) patch(ctx context.Context, before *v1alpha1.JobReport, status v1alpha1.JobReportStatus) (*v1alpha1.JobReport, error) {
	after := before.DeepCopy()
	after.Status = status
	if err := kube.PatchStatus(ctx, s.client, before, after); err != nil {
		return nil, fmt.Errorf("patching the report's status: %w", err)
	}
	for _, event := range report.Events(&before.Status, &after.Status) {
		s.recorder.Eventf(after, nil, event.Type, event.Reason, "Scan", "%s", event.Message)
	}
	return after, nil
}
