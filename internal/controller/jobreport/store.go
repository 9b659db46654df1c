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

// maxStore is the longest that storing a report may take.
const maxStore = 30 * time.Second

// retryStore is how long after a failure it is tried again.
const retryStore = time.Second

// storeScan stores what a scan found, if that is worth a write.
func (s *Scanner) storeScan(ctx context.Context, namespace string, tally *report.Aggregator, began time.Time, took time.Duration) error {
	stored, err := s.store(ctx, namespace, nil, func(before v1alpha1.JobReportStatus) v1alpha1.JobReportStatus {
		return report.StatusAfterScan(before, tally, began, took)
	})
	if err != nil {
		return err
	}
	observe(namespace, &stored.Status.Summary, began)
	s.mirror(ctx, stored)
	return nil
}

// storeFailure stores that a scan failed, and why it did.
func (s *Scanner) storeFailure(ctx context.Context, namespace string, cause error) error {
	stored, err := s.store(ctx, namespace, cause, func(before v1alpha1.JobReportStatus) v1alpha1.JobReportStatus {
		return report.StatusAfterFailure(before, failureOf(cause), s.clock.Now())
	})
	if err != nil {
		return err
	}
	s.mirror(ctx, stored)
	return nil
}

// store makes the report's next status from its last, and writes it if that is due. It
// returns the report as it is stored then. While the API server is away it tries again:
// a scan that fails because of that, which is then the cause, should be told of.
func (s *Scanner) store(ctx context.Context, namespace string, cause error, next func(v1alpha1.JobReportStatus) v1alpha1.JobReportStatus) (*v1alpha1.JobReport, error) {
	ctx, cancel := context.WithTimeout(ctx, maxStore)
	defer cancel()
	wasAway := cause != nil && !answered(cause)
	for {
		stored, err := s.write(ctx, namespace, next)
		if err == nil {
			return stored, nil
		}
		wasAway = wasAway || !answered(err)
		if again := mayPass(err) || wasAway && isDenied(err); !again || !s.pause(ctx) {
			if isShutOut(err) {
				forget(namespace)
			}
			return nil, err
		}
	}
}

// pause waits until it is time to try again. It returns false if there is none left.
func (s *Scanner) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.clock.After(retryStore):
		return true
	}
}

// answered reports whether an error is what the API server has said, and not that it said nothing.
func answered(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

// mayPass reports whether an error is likely to be over soon: the API server did not
// answer, has too much to do, or has a newer version of the report.
func mayPass(err error) bool {
	return !answered(err) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// isDenied reports whether there is no permission. An API server that has just come back
// says so too, until it knows all Roles.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isShutOut reports whether there is no report to be had in the namespace: it is gone or
// goes, and with it the Role, or only that does. What was counted there is then not known
// to be there still.
func isShutOut(err error) bool { return isNamespaceGone(err) || apierrors.IsForbidden(err) }

// write reads the report, and writes its next status if that is due.
func (s *Scanner) write(ctx context.Context, namespace string, next func(v1alpha1.JobReportStatus) v1alpha1.JobReportStatus) (*v1alpha1.JobReport, error) {
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
		writes.WithLabelValues(string(decision)).Inc()
		return before, nil
	}
	if missing {
		if err := s.client.Create(ctx, before); err != nil {
			writes.WithLabelValues(writeFailed).Inc()
			return nil, fmt.Errorf("creating the report: %w", err)
		}
	}
	after, err := s.patch(ctx, before, status)
	if err != nil {
		writes.WithLabelValues(writeFailed).Inc()
		return nil, err
	}
	writes.WithLabelValues(string(decision)).Inc()
	return after, nil
}

// patch writes the next status over the report, and tells what has changed.
func (s *Scanner) patch(ctx context.Context, before *v1alpha1.JobReport, status v1alpha1.JobReportStatus) (*v1alpha1.JobReport, error) {
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
