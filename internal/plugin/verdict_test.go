package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/test/require"
)

// verdictJobs are the Jobs of the documentation, of every reason, and Jobs of every series, each with a failure that is superseded, a
// failure that is not, and the success between them.
func verdictJobs(t *testing.T) []batchv1.Job {
	t.Helper()
	paths, err := filepath.Glob("../../docs/samples/jobreport/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	var jobs []batchv1.Job
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		job := batchv1.Job{}
		require.NoError(t, yaml.Unmarshal(raw, &job))
		jobs = append(jobs, job)
	}
	controlled := func(apiVersion, kind string) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: types.UID("uid-of-" + kind), Controller: new(true)}}
			job.Annotations = map[string]string{v1alpha1.AnnotationRun: "1"}
			job.Labels = map[string]string{v1alpha1.LabelStep: "load"}
		}
	}
	scheduled := func(kind string) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			controlled(v1alpha1.GroupVersion.String(), kind)(job)
			job.OwnerReferences[0].UID = types.UID(job.Name)
			job.Labels[v1alpha1.LabelSchedule] = "nightly"
		}
	}
	hook := func(annotation string) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.Annotations, job.GenerateName = map[string]string{annotation: "Sync"}, "migrate-"
			job.Labels = map[string]string{"app.kubernetes.io/instance": "shop"}
		}
	}
	created := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for story, change := range map[string]func(*batchv1.Job){
		"cronjob": controlled("batch/v1", "CronJob"), "sequence": controlled(v1alpha1.GroupVersion.String(), "SequentialJob"),
		"session": controlled(v1alpha1.GroupVersion.String(), "AgenticSession"), "schedule": scheduled("SequentialJob"), "weekly": scheduled("AgenticSession"),
		"helm": hook("helm.sh/hook"), "argocd": hook("argocd.argoproj.io/hook"),
		"label":  func(job *batchv1.Job) { job.Labels = map[string]string{v1alpha1.LabelReportSeries: "import"} },
		"alone":  func(*batchv1.Job) {},
		"ignore": func(job *batchv1.Job) { job.Annotations = map[string]string{v1alpha1.AnnotationReportIgnore: "True"} },
		"typo":   func(job *batchv1.Job) { job.Annotations = map[string]string{v1alpha1.AnnotationReportIgnore: "yes"} },
	} {
		for i, condition := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailed} {
			job := batchv1.Job{}
			job.Name = fmt.Sprintf("%s-%d", story, i)
			job.CreationTimestamp = metav1.NewTime(created.Add(time.Duration(i) * time.Minute))
			job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", LastTransitionTime: job.CreationTimestamp}}
			change(&job)
			jobs = append(jobs, job)
		}
	}
	for i := range jobs {
		jobs[i].Namespace, jobs[i].UID, jobs[i].ResourceVersion = "a", types.UID(jobs[i].Name), ""
		for j := range jobs[i].ManagedFields { // of which the samples show only a part
			fields := &jobs[i].ManagedFields[j]
			fields.APIVersion, fields.FieldsType, fields.FieldsV1 = "batch/v1", "FieldsV1", metav1.NewFieldsV1("{}")
		}
		if jobs[i].DeletionTimestamp != nil && len(jobs[i].Finalizers) == 0 {
			jobs[i].Finalizers = []string{"a.example/hold"}
		}
	}
	return jobs
}

// The report that the operator stores, its export, the plugin's report and explanation, and the page agree about each Job.
func TestEachPlaceThatShowsAVerdictShowsTheSame(t *testing.T) {
	jobs := verdictJobs(t)
	thresholds := jobreport.DefaultThresholds()
	thresholds[jobreport.ReasonNeverStarted].Zombie = 2 * time.Hour // not the default: the plugin learns it from the stored report
	compared, healthy, reasons := 0, 0, map[string]bool{}
	for _, now := range []time.Time{
		time.Date(2026, 3, 1, 0, 31, 0, 0, time.UTC), time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC),
	} {
		stored := &v1alpha1.JobReport{}
		stored.Namespace, stored.Name = "a", v1alpha1.JobReportName
		aggregator := jobreport.NewAggregator(jobreport.MaxFindings)
		objects := []client.Object{stored}
		for i := range jobs {
			aggregator.Add(jobreport.NewEntry(&jobs[i], now, thresholds))
			objects = append(objects, jobs[i].DeepCopy())
		}
		stored.Status = jobreport.Decide(jobreport.Observation{Report: stored, Scan: jobreport.Scan{Jobs: aggregator, Thresholds: thresholds, StartTime: now}, Now: now, Unstored: true}).Status

		verdicts := map[string]map[string]string{"operator": {}, "OpenReports": {}, "report": {}, "explain": {}, "page": {}}
		addFindings := func(place string, report *v1alpha1.JobReport) {
			for i := range report.Status.Findings {
				f := &report.Status.Findings[i]
				verdicts[place][f.Name] = string(f.Category) + " " + f.Reason
			}
		}
		addFindings("operator", stored)
		for i := range stored.Status.Findings {
			reasons[stored.Status.Findings[i].Reason] = true
		}
		for _, result := range jobreport.FromJobReport(stored).Results {
			category := map[openreportsv1alpha1.Result]string{"warn": "Suspicious", "fail": "Zombie"}[result.Result]
			verdicts["OpenReports"][result.Subjects[0].Name] = category + " " + result.Rule
		}
		c := newFakeClient(t, objects...)
		run := func(args string) []byte {
			var out, errOut bytes.Buffer
			runCommand(t.Context(), strings.Fields(args), &environment{
				out: &out, errOut: &errOut, now: func() time.Time { return now },
				connect: func(clientcmd.ClientConfig) (*clusterConnection, error) {
					return &clusterConnection{WithWatch: c, namespace: "a"}, nil
				},
			})
			require.True(t, errOut.Len() == 0, "%s: %s", args, errOut.String())
			return out.Bytes()
		}
		report, raw := v1alpha1.JobReport{}, run("report -o json")
		require.NoError(t, json.Unmarshal(raw, &report))
		addFindings("report", &report)
		for _, group := range view.NewStale(&view.Scope{}, [][]byte{raw}, "", now).Groups {
			require.True(t, group.More == 0, "the page does not show %d Jobs", group.More)
			for _, job := range group.Jobs {
				verdicts["page"][job.Name] = group.Category + " " + group.Reason
			}
		}
		for i := range jobs {
			explanation := render.JobExplanation{}
			require.NoError(t, json.Unmarshal(run("report explain "+jobs[i].Name+" -o json"), &explanation))
			if explanation.Reason != "" {
				verdicts["explain"][jobs[i].Name] = string(explanation.Category) + " " + string(explanation.Reason)
			}
		}
		for i := range jobs {
			want := verdicts["operator"][jobs[i].Name]
			compared++
			if want == "" {
				healthy++
			}
			for place, verdict := range verdicts {
				if verdict[jobs[i].Name] != want {
					t.Errorf("%s, %s: %q in %s, %q by the operator", now.Format(time.RFC3339), jobs[i].Name, verdict[jobs[i].Name], place, want)
				}
			}
		}
	}
	t.Logf("%d verdicts, %d of them healthy or ignored, with %d reasons", compared, healthy, len(reasons))
	require.True(t, len(reasons) >= len(jobreport.AllReasons()) && compared >= 60 && healthy != 0, "%d verdicts with the reasons %v", compared, reasons)
}
