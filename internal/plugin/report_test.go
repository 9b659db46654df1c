package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/test/require"
)

func unstartedJob(namespace, name string, age time.Duration) *batchv1.Job {
	job := &batchv1.Job{}
	job.Namespace, job.Name = namespace, name
	job.CreationTimestamp = metav1.NewTime(testTime.Add(-age))
	return job
}

var staleTestJobs = []client.Object{
	&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
	unstartedJob("a", "dead", 48*time.Hour), unstartedJob("a", "slow", time.Hour), unstartedJob("a", "new", time.Second), unstartedJob("b", "late", 2*time.Hour),
}

func TestReportPrintsAndExitsAsItsFlagsSay(t *testing.T) {
	for args, row := range map[string]struct {
		code int
		want []string
		not  string
	}{
		"report":                                  {exitUnsuccessful, []string{"Zombie"}, "\x1b"}, // without colors in a pipe
		"report -A":                               {exitUnsuccessful, []string{"\na ", "\nb ", "4 Jobs: 1 healthy, 2 suspicious, 1 zombie"}, "not shown"},
		"report -n b":                             {exitSuccess, []string{"late", "1 Jobs: 0 healthy"}, "dead"},
		"report -n b --fail-on=suspicious":        {exitUnsuccessful, []string{"late"}, "dead"},
		"report -n c --fail-on=suspicious":        {exitSuccess, []string{"0 Jobs: 0 healthy, 0 suspicious, 0 zombie"}, "NAMESPACE"},
		"report --top=1":                          {exitUnsuccessful, []string{"dead", "; 1 not shown"}, "slow"},
		"report --color=always":                   {exitUnsuccessful, []string{"\x1b[31mZombie\x1b[0m", "\x1b[33mSuspicious\x1b[0m"}, "\x1b[31mSuspicious"},
		"report --never-started-zombie-after=30m": {exitUnsuccessful, []string{"2 zombie"}, "Suspicious"},
		"report --no-ready-pods-zombie-after=7d":  {exitUnsuccessful, []string{"1 zombie"}, "2 zombie"},
		"report --fail-on=suspicious":             {exitUnsuccessful, nil, "warning"},
		"report --fail-on=never":                  {exitSuccess, []string{"Zombie"}, "warning"},
		"report -o json":                          {exitUnsuccessful, []string{"Zombie"}, "MESSAGE"},
		"report -o wide":                          {exitUnsuccessful, []string{"Zombie"}, "kind"},
		"report --group-by=owner":                 {exitUnsuccessful, []string{"OWNER"}, "kind"},
		"report --group-by=reason":                {exitError, nil, "Zombie"},
		"report -l team=data,":                    {exitError, nil, "Zombie"},
		"report -n missing --fail-on=never":       {exitError, []string{"namespace \"missing\" does not exist; list namespaces with kubectl get namespaces"}, "Zombie"},
		"report --from-cluster":                   {exitError, nil, "Zombie"},
		"report --top=501":                        {exitError, nil, "Zombie"},
		"report --no-ready-pods-zombie-after=-1s": {exitError, nil, "Zombie"},
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, args, staleTestJobs...)
			require.True(t, code == row.code && (errOut != "") == (code == exitError), "exit code %d, want %d: %s", code, row.code, errOut)
			for _, want := range row.want {
				require.Contains(t, out+errOut, want)
			}
			require.True(t, !strings.Contains(out, row.not), "unexpected %q:\n%s", row.not, out)
		})
	}
}

func TestReportFailsIfJobsCannotBeListed(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "", errors.New("no RBAC policy matched"))
	code, out, errOut := runPluginWith(t, "report", failingLists(t, forbidden))
	require.True(t, code == exitError && out == "" && strings.Contains(errOut, "listing Jobs, page 1: "), outcome, code, out, errOut)
}

func TestReportPrintsJobReportsAsJSONAndYAML(t *testing.T) {
	_, raw, _ := runPlugin(t, "report -o json", staleTestJobs...)
	var one v1alpha1.JobReport
	require.NoError(t, json.Unmarshal([]byte(raw), &one))
	require.True(t, one.Kind == "JobReport" && one.Namespace == "a" && one.Status.Summary.Total == 3 && len(one.Status.Findings) == 2, "report %+v", one)
	_, raw, _ = runPlugin(t, "report -A -o yaml", staleTestJobs...)
	var list v1alpha1.JobReportList
	require.NoError(t, yaml.UnmarshalStrict([]byte(raw), &list))
	require.True(t, list.Kind == "JobReportList" && len(list.Items) == 2 && list.Items[1].Namespace == "b", "reports %+v", list)
	_, raw, _ = runPlugin(t, "report -A -o json")
	require.Contains(t, raw, `"items": []`)
}

func TestANamespaceThatCannotBeReadIsUnknown(t *testing.T) {
	unreadable := interceptor.NewClient(newFakeClient(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "c", errors.New("no RBAC policy matched"))
		},
	})
	code, _, errOut := runPluginWith(t, "report -n c", unreadable)
	want := "warning: found no Jobs, and you have no permission to check that namespace \"c\" exists\n"
	require.True(t, code == exitSuccess && errOut == want, "exit code %d, stderr %q", code, errOut)
}

func TestAPrintedReportListsAsManyJobsAsTheTable(t *testing.T) {
	var jobs []client.Object
	for i := range 450 {
		job := unstartedJob("a", fmt.Sprintf("%s-%03d", strings.Repeat("j", 200), i), 48*time.Hour)
		job.Finalizers = []string{strings.Repeat("f", 100) + ".example/hold"}
		jobs = append(jobs, job)
	}
	_, raw, _ := runPlugin(t, "report -o json", jobs...)
	var one v1alpha1.JobReport
	require.NoError(t, json.Unmarshal([]byte(raw), &one))
	require.Equal(t, 450, len(one.Status.Findings))
}

func failedRuns(count int) []client.Object {
	var jobs []client.Object
	for i := range count {
		job := unstartedJob("a", fmt.Sprintf("nightly-%02d", i), time.Duration(count-i)*time.Hour)
		job.UID = types.UID(job.Name)
		job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", UID: "1", Controller: new(true)}}
		job.Status.Conditions = []batchv1.JobCondition{{
			Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "too slow", LastTransitionTime: job.CreationTimestamp,
		}}
		jobs = append(jobs, job)
	}
	return jobs
}

func TestReportGroupsFindingsByOwner(t *testing.T) {
	_, out, _ := runPlugin(t, "report --group-by owner", append(failedRuns(60), unstartedJob("a", "dead", 48*time.Hour))...)
	want := `NAMESPACE   OWNER             JOBS   CATEGORY     REASON             NEWEST   MESSAGE
a           Job/dead          1      Zombie       NeverStarted       2d       waiting to be started since 2026-02-27T12:00:00Z; no startTime
a           CronJob/nightly   60     Suspicious   DeadlineExceeded   60m      too slow

61 Jobs: 0 healthy, 60 suspicious, 1 zombie
`
	require.Equal(t, want, out)
}

func TestReportFromClusterShowsTheSameAsTheOperatorStored(t *testing.T) {
	jobs := append(failedRuns(3), staleTestJobs...)
	for _, args := range []string{"report", "report --group-by owner", "report -o wide", "report -o name"} {
		_, classified, _ := runPlugin(t, args, jobs...)
		_, raw, _ := runPlugin(t, "report -o json", jobs...)
		stored := &v1alpha1.JobReport{}
		require.NoError(t, json.Unmarshal([]byte(raw), stored))
		code, out, errOut := runPlugin(t, args+" --from-cluster", stored)
		diff := cmp.Diff(classified, out)
		require.True(t, diff == "" && code == exitUnsuccessful && errOut == "", "%s: exit code %d, stderr %q, table:\n%s", args, code, errOut, diff)
	}
}

func TestReportFromClusterWarnsOfAFailedScan(t *testing.T) {
	stored := &v1alpha1.JobReport{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: v1alpha1.JobReportName}}
	stored.Status.LastScanTime = new(metav1.NewTime(testTime))
	stored.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Forbidden", Message: "no Role"}}
	code, _, errOut := runPlugin(t, "report --from-cluster", stored)
	require.True(t, code == exitSuccess && errOut == "warning: the last scan of namespace a failed (Forbidden): no Role\n", outcome, code, "", errOut)
}

func TestReportExplainReadsPodsAndEvents(t *testing.T) {
	job := unstartedJob("a", "train", 48*time.Hour)
	job.UID = "j"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "train-x", UID: "p", Labels: map[string]string{batchv1.ControllerUidLabel: "j"}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/5 nodes have nvidia.com/gpu"}}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}, Type: "Warning", Reason: "FailedCreate", Message: "exceeded quota: team-a"}
	event.InvolvedObject.UID = "j"
	code, out, errOut := runPlugin(t, "report explain train", job, pod, event)
	require.True(t, code == exitSuccess && errOut == "", "exit code %d, stderr %q", code, errOut)
	for _, want := range []string{"job.batch/train   Zombie   NeverStarted   for 2d", "Unschedulable: 1 Pod without a node: 0/5 nodes have nvidia.com/gpu", "FailedCreate: exceeded quota: team-a", "next ", "kube-controller-manager"} {
		require.Contains(t, out, want)
	}
}

// supersededTestJobs are a failed run of a CronJob and a later successful run.
func supersededTestJobs() []client.Object {
	run := func(name string, age time.Duration, condition batchv1.JobConditionType) *batchv1.Job {
		job := unstartedJob("a", name, age)
		job.UID, job.Labels = types.UID(name), map[string]string{"run": name}
		job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", UID: "c", Controller: new(true)}}
		job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", LastTransitionTime: job.CreationTimestamp}}
		return job
	}
	return []client.Object{run("failed", 2*time.Hour, batchv1.JobFailed), run("good", time.Hour, batchv1.JobComplete)}
}

func TestTheReportAndItsExplanationHaveTheSameVerdict(t *testing.T) {
	stored := &v1alpha1.JobReport{}
	stored.Namespace, stored.Name = "a", v1alpha1.JobReportName
	stored.Status.Thresholds = map[string]string{"never-started-zombie-after": "30m", "of-another-version": "1h"}
	late := unstartedJob("a", "late", time.Hour)
	for name, row := range map[string]struct {
		job, flags string
		objects    []client.Object
		want       string
	}{
		"by the default thresholds":                     {"late", "", []client.Object{late}, "Suspicious"},
		"by the thresholds of the stored report":        {"late", "", []client.Object{late, stored}, "Zombie"},
		"by the flag":                                   {"late", " --never-started-zombie-after=2h", []client.Object{late, stored}, "Suspicious"},
		"by a flag that is the default":                 {"late", " --never-started-zombie-after=24h", []client.Object{late, stored}, "Suspicious"},
		"a failure that a later run supersedes":         {"failed", "", supersededTestJobs(), "Healthy"},
		"a failure without a later run":                 {"failed", "", supersededTestJobs()[:1], "Suspicious"},
		"a failure whose later run is not selected too": {"failed", " -l run=failed", supersededTestJobs(), "Healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, raw, _ := runPlugin(t, "report -o json"+row.flags, row.objects...)
			report := v1alpha1.JobReport{}
			require.NoError(t, json.Unmarshal([]byte(raw), &report))
			reported := "Healthy"
			for i := range report.Status.Findings {
				if report.Status.Findings[i].Name == row.job {
					reported = string(report.Status.Findings[i].Category)
				}
			}
			flags := row.flags
			if strings.HasPrefix(flags, " -l") {
				flags = "" // explain names one Job
			}
			_, raw, _ = runPlugin(t, "report explain "+row.job+" -o json"+flags, row.objects...)
			explained := struct{ Category, Message string }{}
			require.NoError(t, json.Unmarshal([]byte(raw), &explained))
			require.True(t, reported == row.want && explained.Category == row.want, "reported as %s, explained as %+v", reported, explained)
			isSuperseded := strings.Contains(explained.Message, "the later Job good does the same work")
			require.True(t, isSuperseded == (row.job == "failed" && row.want == "Healthy"), "message %q", explained.Message)
		})
	}
}

func TestReportExplainWithoutPermissionSaysWhatIsUnknown(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no RBAC policy matched"))
	code, out, errOut := runPluginWith(t, "report explain train", failingLists(t, forbidden, unstartedJob("a", "train", time.Hour)))
	require.True(t, code == exitSuccess && strings.Contains(out, "NeverStarted"), "exit code %d, stdout %q", code, out)
	require.True(t, strings.Contains(errOut, "warning: the Job's Pods are unknown: ") && strings.Contains(errOut, "warning: the Job's events are unknown: "),
		"stderr %q", errOut)
}

// verdictJobs are the Jobs of the documentation, of every reason, and Jobs of every series, each with a failure that is superseded, a
// failure that is not, and the success between them.
func verdictJobs(t *testing.T) []batchv1.Job {
	paths, err := filepath.Glob("../../docs/samples/jobreport/*.yaml")
	require.True(t, err == nil && len(paths) > 0, "%v: %v", paths, err)
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
				require.True(t, verdict[jobs[i].Name] == want, "%s, %s: %q in %s, %q by the operator", now, jobs[i].Name, verdict[jobs[i].Name], place, want)
			}
		}
	}
	t.Logf("%d verdicts, %d of them healthy or ignored, with %d reasons", compared, healthy, len(reasons))
	require.True(t, len(reasons) >= len(jobreport.AllReasons()) && compared >= 60 && healthy != 0, "%d verdicts with the reasons %v", compared, reasons)
}
