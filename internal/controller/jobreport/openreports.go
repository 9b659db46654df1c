package jobreport

import (
	"context"
	"errors"
	"fmt"
	"time"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/openreports"
	"github.com/yardmaster/yardmaster/internal/report"
)

// fieldManager is who applies Reports.
const fieldManager = client.FieldOwner("yardmaster-jobreport")

// maxExportDuration is the longest that writing a Report may take.
const maxExportDuration = 10 * time.Second

// errReportNameTaken is that a Report has our name, and is somebody else's.
var errReportNameTaken = errors.New("a Report named " + openreports.ReportName + " is there that is not the operator's")

// exportReport has an OpenReports Report say what the JobReport says, if that is asked for, and
// the JobReport whether it does. The JobReport is stored by then: whatever happens here
// is told there and in metrics, and is no failure of the scan.
func (s *Reconciler) exportReport(ctx context.Context, stored *v1alpha1.JobReport) {
	if !s.options.OpenReports || stored.Status.LastScanTime == nil {
		return // nothing has been found yet
	}
	decision, err := s.applyReport(ctx, stored)
	if ctx.Err() != nil {
		return
	}
	var failure *report.ScanFailure
	if err != nil {
		failure = new(exportFailure(err))
		exportsTotal.WithLabelValues(writeResultFailed).Inc()
		exportErrorsTotal.WithLabelValues(failure.Reason).Inc()
	} else {
		exportsTotal.WithLabelValues(string(decision)).Inc()
	}
	s.tell(ctx, stored, failure)
}

// applyReport writes the JobReport's Report, if it says something else than the one that is stored.
func (s *Reconciler) applyReport(ctx context.Context, stored *v1alpha1.JobReport) (report.WriteDecision, error) {
	ctx, cancel := context.WithTimeout(ctx, maxExportDuration)
	defer cancel()
	next := openreports.FromJobReport(stored)
	before, err := s.getStoredReport(ctx, next)
	switch {
	case err != nil:
		return "", err
	case before != nil && !openreports.IsManagedByYardmaster(before):
		return "", errReportNameTaken
	case before != nil && openreports.HasSameContent(before, next):
		return report.DecisionUnchanged, nil
	}
	applied, err := openreports.ApplyConfiguration(next)
	if err != nil {
		return "", err
	}
	if err := s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), fieldManager, client.ForceOwnership); err != nil {
		return "", fmt.Errorf("applying the Report: %w", err)
	}
	return report.DecisionChanged, nil
}

// getStoredReport is the stored Report of that name; nil if there is none. It is read without
// the kind being registered, as the kind need not be there.
func (s *Reconciler) getStoredReport(ctx context.Context, like *openreportsv1alpha1.Report) (*openreportsv1alpha1.Report, error) {
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(like.GroupVersionKind())
	if err := s.live.Get(ctx, client.ObjectKeyFromObject(like), raw); err != nil {
		if apierrors.IsNotFound(err) && !isKindNotServed(err) {
			return nil, nil //nolint:nilnil // there is none
		}
		return nil, fmt.Errorf("reading the Report: %w", err)
	}
	stored := &openreportsv1alpha1.Report{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, stored); err != nil {
		return nil, fmt.Errorf("decoding the Report: %w", err)
	}
	return stored, nil
}

// tell stores in the JobReport whether its findings are in a Report too, if that has changed.
func (s *Reconciler) tell(ctx context.Context, stored *v1alpha1.JobReport, failure *report.ScanFailure) {
	status := report.StatusAfterExport(stored.Status, failure, s.clock.Now())
	if report.CompareStatus(stored.Namespace, &stored.Status, &status) == report.DecisionUnchanged {
		return
	}
	log := s.log.WithValues("namespace", stored.Namespace)
	if failure != nil {
		log.Info("The findings could not be written as a Report", "reason", failure.Reason, "message", failure.Message)
	}
	ctx, cancel := context.WithTimeout(ctx, maxExportDuration)
	defer cancel()
	if _, err := s.patch(ctx, stored, status); err != nil {
		log.Error(err, "Telling of the Report failed") // the next scan tells
	}
}

// exportFailure is what a JobReport says of a Report that could not be written.
func exportFailure(err error) report.ScanFailure {
	switch {
	case isKindNotServed(err):
		return report.ScanFailure{
			Reason:  v1alpha1.ReasonCRDMissing,
			Message: "the CustomResourceDefinition reports.openreports.io is not installed",
		}
	case errors.Is(err, errReportNameTaken):
		return report.ScanFailure{Reason: v1alpha1.ReasonNameTaken, Message: err.Error()}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return report.ScanFailure{Reason: v1alpha1.ReasonForbidden, Message: stableErrorText(err)}
	case isTimeoutError(err):
		return report.ScanFailure{Reason: v1alpha1.ReasonTimeout, Message: "the Report could not be written in time"}
	default:
		return report.ScanFailure{Reason: v1alpha1.ReasonWriteFailed, Message: stableErrorText(err)}
	}
}

// isKindNotServed reports whether the API server does not serve the kind: it is not found in
// what is served, or its address is not.
func isKindNotServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
