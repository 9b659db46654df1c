package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
)

// fieldManager applies OpenReports Reports.
const fieldManager = client.FieldOwner("yardmaster-jobreport")

// maxExportDuration bounds the write of a Report, and separately the write of its result.
const maxExportDuration = 10 * time.Second

var errReportNameTaken = errors.New("a Report named " + jobreport.ReportName + " exists that the operator did not create; delete it")

// act writes the findings as an OpenReports Report. A failure is reported in the JobReport and in metrics; it does not fail the
// scan.
func (r *Reconciler) act(ctx context.Context, stored *v1alpha1.JobReport) *jobreport.ExportResult {
	written, err := r.applyReport(ctx, stored)
	if err == nil {
		exportsTotal.WithLabelValues(string(written)).Inc()
		return &jobreport.ExportResult{}
	}
	failure := exportFailure(err)
	if ctx.Err() == nil {
		exportsTotal.WithLabelValues(writeResultFailed).Inc()
		exportErrorsTotal.WithLabelValues(failure.Reason).Inc()
	}
	return &jobreport.ExportResult{Failure: &failure}
}

// applyReport applies the Report unless the stored Report has the same content.
func (r *Reconciler) applyReport(ctx context.Context, stored *v1alpha1.JobReport) (jobreport.WriteReason, error) {
	ctx, cancel := context.WithTimeout(ctx, maxExportDuration)
	defer cancel()
	next := jobreport.FromJobReport(stored)
	before, err := r.getStoredReport(ctx, next)
	switch {
	case err != nil:
		return "", err
	case before != nil && !jobreport.IsManagedByYardmaster(before):
		return "", errReportNameTaken
	case before != nil && jobreport.HasSameContent(before, next):
		return jobreport.WriteUnchanged, nil
	}
	configuration, err := jobreport.ApplyConfiguration(next)
	if err != nil {
		return "", err
	}
	if err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(configuration), fieldManager, client.ForceOwnership); err != nil {
		return "", fmt.Errorf("applying the Report: %w", err)
	}
	return jobreport.WriteChanged, nil
}

// getStoredReport returns nil if the Report does not exist. It reads an unstructured object, because the kind is not
// registered: its CustomResourceDefinition is optional.
func (r *Reconciler) getStoredReport(ctx context.Context, like *openreportsv1alpha1.Report) (*openreportsv1alpha1.Report, error) {
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(like.GroupVersionKind())
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(like), raw); err != nil {
		if apierrors.IsNotFound(err) && !isKindNotServed(err) {
			return nil, nil //nolint:nilnil // it does not exist
		}
		return nil, fmt.Errorf("reading the Report: %w", err)
	}
	stored := &openreportsv1alpha1.Report{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, stored); err != nil {
		return nil, fmt.Errorf("decoding the Report: %w", err)
	}
	return stored, nil
}

// recordExport records the result of act. If it fails, the next scan records the result.
func (r *Reconciler) recordExport(ctx context.Context, observation *jobreport.Observation, decision *jobreport.Decision) {
	if ctx.Err() != nil || decision.Write == jobreport.WriteUnchanged {
		return
	}
	log := r.log.WithValues("namespace", observation.Report.Namespace)
	if failure := observation.Export.Failure; failure != nil {
		log.Info("Could not write the findings as a Report", "reason", failure.Reason, "message", failure.Message)
	}
	ctx, cancel := context.WithTimeout(ctx, maxExportDuration)
	defer cancel()
	if err := r.record(ctx, observation, decision); err != nil {
		log.Error(err, "Could not record in the JobReport whether the Report was written")
	}
}
