package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestOpenReports(t *testing.T) {
	withoutOpenReports(t)
	ns, bare := namespace(t), namespace(t) // with the Role for OpenReports, and without
	for _, one := range []string{ns, bare} {
		abandonedJobs(t, one, 3)
	}
	as := newReporterConfig(t, ns, bare)
	grantRole(t, ns, "jobreport-openreports")
	options := scanOptions(ns, bare)
	options.OpenReports = true
	scanner := newScanner(t, as, events.NewFakeRecorder(100), options)
	// wantExported scans, and checks that the JobReport is correct, whatever happened to the Report.
	wantExported := func(in string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		scanner.ReconcileAll(t.Context())
		report := reportOf(t, in).Status
		ready := meta.FindStatusCondition(report.Conditions, v1alpha1.ConditionOpenReportsReady)
		if ready == nil || ready.Status != status || ready.Reason != reason {
			t.Errorf("%s: condition %+v, want %s %s", in, ready, status, reason)
		}
		if !meta.IsStatusConditionTrue(report.Conditions, v1alpha1.ConditionReady) || report.Summary.Total != 3 || len(report.Findings) != 3 {
			t.Errorf("%s: the JobReport has %d Jobs and %d findings, want 3: %+v", in, report.Summary.Total, len(report.Findings), report.Conditions)
		}
	}
	wantExported(ns, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	installOpenReports(t)

	// A Report of another owner is not changed.
	others := &openreportsv1alpha1.Report{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: jobreport.ReportName}, Source: "another-tool"}
	reports := openReportsClient(t)
	require.NoError(t, reports.Create(t.Context(), others))
	wantExported(ns, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	if got := openReport(t, ns); got.ResourceVersion != others.ResourceVersion {
		t.Errorf("it was overwritten:\n%s", cmp.Diff(others, got))
	}
	require.NoError(t, reports.Delete(t.Context(), others))

	wantExported(ns, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	wantExported(bare, metav1.ConditionFalse, v1alpha1.ReasonForbidden)
	got, jobReport := openReport(t, ns), reportOf(t, ns)
	if !jobreport.HasSameContent(got, jobreport.FromJobReport(jobReport)) || got.Summary.Warn != 3 {
		t.Errorf("the Report differs from the JobReport: %+v", got)
	}
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != jobReport.UID {
		t.Errorf("the owners are %+v", got.OwnerReferences)
	}
	if len(got.ManagedFields) != 1 || got.ManagedFields[0].Manager != "yardmaster-jobreport" {
		t.Errorf("its fields are managed by %+v", got.ManagedFields)
	}

	// An edited Report is corrected, and a correct one is not written.
	got.Summary.Warn, got.Results = 0, nil
	require.NoError(t, reports.Update(t.Context(), got))
	wantExported(ns, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	corrected := openReport(t, ns)
	if !jobreport.HasSameContent(corrected, jobreport.FromJobReport(reportOf(t, ns))) {
		t.Errorf("the Report was not corrected: %+v", corrected)
	}
	wantExported(ns, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	if again := openReport(t, ns); again.ResourceVersion != corrected.ResourceVersion {
		t.Error("a Report that is correct was written")
	}
	removeOpenReports(t)
	wantExported(ns, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
}

func openReport(t *testing.T, ns string) *openreportsv1alpha1.Report {
	t.Helper()
	report := &openreportsv1alpha1.Report{}
	require.NoError(t, openReportsClient(t).Get(t.Context(), client.ObjectKey{Namespace: ns, Name: jobreport.ReportName}, report))
	return report
}

// openReportsClient returns a client whose scheme contains the kind Report.
func openReportsClient(t *testing.T) client.Client {
	t.Helper()
	require.NoError(t, openreportsv1alpha1.Install(cluster.Scheme()))
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	return c
}

// openReportsCRD returns the CustomResourceDefinition that OpenReports ships.
func openReportsCRD(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openreports/reports-api")
	list.Dir = repositoryRoot
	directory, err := list.Output()
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, readYAML(filepath.Join(strings.TrimSpace(string(directory)), "config", "crd", "openreports.io_reports.yaml"), crd))
	return crd
}

func installOpenReports(t *testing.T) {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), openReportsCRD(t)))
	poll.Until(t, "the kind to be served", func() bool {
		return openReportsClient(t).List(t.Context(), &openreportsv1alpha1.ReportList{}) == nil
	})
}

func removeOpenReports(t *testing.T) {
	t.Helper()
	crd := openReportsCRD(t)
	require.NoError(t, client.IgnoreNotFound(cluster.Delete(t.Context(), crd)))
	poll.Until(t, "the kind to be removed", func() bool {
		err := cluster.Get(t.Context(), client.ObjectKeyFromObject(crd), crd.DeepCopy())
		return apierrors.IsNotFound(err) && openReportsClient(t).List(t.Context(), &openreportsv1alpha1.ReportList{}) != nil
	})
}

// withoutOpenReports removes the kind now and at the end of the test.
func withoutOpenReports(t *testing.T) {
	t.Helper()
	removeOpenReports(t)
	crd := openReportsCRD(t)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(cluster.Delete(context.Background(), crd)); err != nil {
			t.Error(err)
		}
	})
}
