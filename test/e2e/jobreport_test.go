//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// shortThresholds sets thresholds of seconds for the operator, instead of hours and days.
var shortThresholds = []string{
	"YARDMASTER_REPORT_INTERVAL=2s",
	"YARDMASTER_REPORT_STUCK_TERMINATING_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_STUCK_TERMINATING_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_SUSPENDED_TOO_LONG_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_SUSPENDED_TOO_LONG_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_NO_READY_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_READY_PODS_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_RUNNING_TOO_LONG_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_RUNNING_TOO_LONG_ZOMBIE_AFTER=1h",
	"YARDMASTER_REPORT_NO_ACTIVE_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_ACTIVE_PODS_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_INTERIM_STUCK_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_INTERIM_STUCK_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_PAUSED_BY_PARALLELISM_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_EXTERNALLY_MANAGED_SUSPICIOUS_AFTER=1s",
}

// findingsByJob returns the category, the reason and the owner of each finding.
func findingsByJob(report *v1alpha1.JobReport) map[string]string {
	got := map[string]string{}
	for i := range report.Status.Findings {
		f := &report.Status.Findings[i]
		got[f.Name] = string(f.Category) + " " + f.Reason
		if f.Owner != nil {
			got[f.Name] += " of " + f.Owner.Kind + "/" + f.Owner.Name
		}
	}
	return got
}

func testOperatorReportsStaleJobs(t *testing.T) {
	before := readJobSpecs(t)
	report := &v1alpha1.JobReport{}
	key := client.ObjectKey{Namespace: reportedNamespace, Name: v1alpha1.JobReportName}
	want := map[string]string{}
	for i := range jobFixtures {
		if f := &jobFixtures[i]; f.owner != "" {
			want[f.name] = f.finding + " of " + f.owner
		} else if f.finding != "" {
			want[f.name] = f.finding
		}
	}
	require.NoError(t, poll.UntilNil(t.Context(), func() error {
		require.NoError(t, client.IgnoreNotFound(cluster.Get(t.Context(), key, report)))
		if diff := cmp.Diff(want, findingsByJob(report)); diff != "" {
			return fmt.Errorf("findings (-want +got):\n%s", diff)
		}
		return nil
	}))
	if s := &report.Status.Summary; int(s.Total) != len(jobFixtures) || s.Ignored != 2 {
		t.Errorf("the summary counts %d Jobs, of which %d are ignored, want %d and 2", s.Total, s.Ignored, len(jobFixtures))
	}
	require.Equal(t, before, readJobSpecs(t))
}

func readJobSpecs(t *testing.T) map[string]batchv1.JobSpec {
	t.Helper()
	var jobs batchv1.JobList
	require.NoError(t, cluster.List(t.Context(), &jobs, client.InNamespace(reportedNamespace)))
	all := map[string]batchv1.JobSpec{}
	for i := range jobs.Items {
		all[jobs.Items[i].Name] = jobs.Items[i].Spec
	}
	return all
}

// The explanation has the verdict of the report, and names the causes that are in Pods and events. Its command works.
func testPluginExplainsStaleJobs(t *testing.T) {
	tried := sets.New[string]()
	for i := range jobFixtures {
		f := &jobFixtures[i]
		var explanation render.JobExplanation
		output := ""
		poll.Until(t, "the explanation of "+f.name, func() bool {
			output, _ = runPluginBinary(t, "report", "explain", f.name, "-n", reportedNamespace, "-o", "json")
			explanation = render.JobExplanation{}
			require.NoError(t, json.Unmarshal([]byte(output), &explanation))
			verdict := strings.TrimSpace(string(explanation.Category) + " " + string(explanation.Reason))
			if f.finding == "" {
				return verdict == "Healthy" || verdict == "Ignored"
			}
			hasCause := slices.ContainsFunc(explanation.Causes, func(cause render.JobCause) bool {
				return strings.Contains(fmt.Sprintf("%s: %d Pod %s", cause.Reason, cause.Pods, cause.Message), f.cause)
			})
			return verdict == f.finding && (f.cause == "" || hasCause)
		})
		words := strings.Fields(explanation.Command)
		// Of the commands that differ in names only, one is run.
		form := strings.Join(slices.DeleteFunc(slices.Clone(words), func(word string) bool { return strings.Contains(word, f.name) }), " ")
		if len(words) < 2 || !slices.Contains([]string{"get", "describe", "logs"}, words[1]) || tried.Has(form) {
			continue
		}
		tried.Insert(form)
		out, err := newKubectlCommand(t.Context(), words[1:]...).CombinedOutput()
		require.True(t, err == nil, "%s: the command %q fails: %v: %s", f.name, explanation.Command, err, out)
	}
}

const (
	blockingFinalizer = "e2e.yardmaster.dev/hold" // a finalizer whose controller does not exist
	// absentManager is a value of managedBy for which no controller exists, so that tests write the status.
	absentManager   = "e2e.yardmaster.dev/none"
	limitedResource = "e2e.yardmaster.dev/licenses" // a resource of which a quota allows none
)

// Scripts, fields, findings and causes of several Jobs.
const (
	scriptSleep          = "sleep 3600"
	scriptIgnoreSIGTERM  = `trap "" TERM; while :; do sleep 1; done`
	noSuchNode           = "nodeSelector: {e2e.yardmaster.dev/none: such}"
	longGrace            = "terminationGracePeriodSeconds: 3600"
	indexed              = "completionMode: Indexed, backoffLimit: null, backoffLimitPerIndex: 0, "
	noReadyPods          = "Zombie NoReadyPods"
	backoffLimitExceeded = "Suspicious BackoffLimitExceeded"
	withoutNode          = "Unschedulable: 1 Pod without a node: 0/1 nodes are available"
)

// stuckFixtures are the Jobs of jobFixtures that do not end, because of a Pod that ignores SIGTERM.
var stuckFixtures = []string{"foreground-deletion", "stuck-failure", "stuck-success"}

type jobFixture struct {
	name string
	// script is that of the container main, which succeeds if it is empty, init and helper those of more containers.
	script, init, helper string
	cronJob              string // the controller of the Job, as with `kubectl create job --from`
	// metadata, spec, pod and main are more fields of the Job, of its spec, its Pods and their container main.
	metadata, spec, pod, main string
	finding                   string // the category and the reason, or empty for a Job that is not reported
	owner                     string // that of the finding
	cause                     string // a part of what `kubectl yardmaster report explain` prints as causes
}

// hookOfShop makes a Job a hook of a Helm release.
const hookOfShop = "{labels: {app.kubernetes.io/instance: shop}, annotations: {helm.sh/hook: pre-upgrade}}"

var jobFixtures = []jobFixture{
	// Healthy or exempt.
	{name: "succeeding"},
	{name: "running", script: scriptSleep, spec: "activeDeadlineSeconds: 3600"},
	{name: "running-again", script: scriptSleep, spec: "{activeDeadlineSeconds: 3600, backoffLimit: 6}"}, // its Pod is deleted
	{name: "nightly-1", script: "exit 1", cronJob: "nightly"},                                            // superseded by nightly-2
	{name: "nightly-2", cronJob: "nightly"},
	{name: "import-1", script: "exit 1", metadata: "labels: {" + v1alpha1.LabelReportSeries + ": import}"}, // superseded by import-2
	{name: "import-2", metadata: "labels: {" + v1alpha1.LabelReportSeries + ": import}"},
	{name: "migrate-1", script: "exit 1", metadata: hookOfShop}, // superseded by migrate-2
	{name: "migrate-2", metadata: hookOfShop},
	{name: "ignored", script: "exit 3", metadata: "annotations: {" + v1alpha1.AnnotationReportIgnore + ": 'true'}"},
	{name: "training", script: scriptSleep, metadata: "annotations: {" + v1alpha1.AnnotationReportRunningTooLong + ": '0s'}"},

	// No Pod becomes ready.
	{name: "image-not-found", main: "image: registry.invalid/none:1", finding: noReadyPods, cause: "registry.invalid/none:1"},
	{name: "unschedulable", pod: noSuchNode, finding: noReadyPods, cause: withoutNode},
	{name: "unschedulable-again", spec: "backoffLimit: 6", pod: noSuchNode, finding: noReadyPods, cause: withoutNode}, // its Pod is deleted
	{name: "no-gpu", main: "resources: {limits: {nvidia.com/gpu: 1}}", finding: noReadyPods, cause: "Insufficient nvidia.com/gpu"},
	{
		name: "no-claim", pod: "volumes: [{name: data, persistentVolumeClaim: {claimName: absent}}]",
		finding: noReadyPods, cause: `persistentvolumeclaim "absent" not found`,
	},
	{name: "no-config", main: "envFrom: [{configMapRef: {name: absent}}]", finding: noReadyPods, cause: `configmap "absent" not found`},
	{
		name: "crash-loop", script: "exit 1", spec: "backoffLimit: 1000", pod: "restartPolicy: OnFailure",
		finding: noReadyPods, cause: "CrashLoopBackOff: 1 Pod with container main",
	},
	{name: "initializing", init: scriptSleep, finding: "Suspicious NoReadyPods", cause: "Initializing: 1 Pod with init container init at work"},
	{
		name: "helper-runs-on", helper: scriptSleep,
		finding: "Suspicious NoReadyPods", cause: "ContainerEnded: 1 Pod with container main, which ended with exit code 0, while container helper runs on",
	},
	{
		name: "failing-init-container", init: "exit 5", spec: "backoffLimit: 1000", pod: "restartPolicy: OnFailure",
		finding: "Suspicious NoReadyPods", cause: "exited with code 5",
	},

	// No Pod is created.
	{name: "violating-pod-security", main: "securityContext: null", finding: "Zombie NoActivePods", cause: `violates PodSecurity "restricted:latest"`},
	{
		name: "quota-exhausted", main: "resources: {limits: {" + limitedResource + ": 1}}",
		finding: "Zombie NoActivePods", cause: "exceeded quota: licenses",
	},
	{name: "no-service-account", pod: "serviceAccountName: absent", finding: "Zombie NoActivePods", cause: `serviceaccount "absent" not found`},

	// Waiting for somebody.
	{name: "suspended", spec: "suspend: true", finding: "Zombie SuspendedTooLong"},
	{
		name: "queued", metadata: "labels: {kueue.x-k8s.io/queue-name: team-a}", spec: "suspend: true",
		finding: "Zombie SuspendedTooLong", owner: "LocalQueue/team-a",
	},
	{name: "paused", spec: "parallelism: 0", finding: "Suspicious PausedByParallelism"},
	{name: "externally-managed", spec: "managedBy: " + absentManager, finding: "Suspicious ExternallyManaged"},
	{name: "without-deadline", script: scriptSleep, finding: "Suspicious RunningTooLong"},
	{
		name: "orphaned", script: scriptSleep, metadata: "annotations: {" + batchv1.CronJobScheduledTimestampAnnotation + ": '2026-03-01T00:00:00Z'}",
		spec: "activeDeadlineSeconds: 3600", finding: "Suspicious Orphaned",
	},

	// Failed.
	{name: "failing", script: "exit 3", finding: backoffLimitExceeded, cause: "container main, which exited with code 3"},
	{
		name: "failing-with-ttl", script: "exit 4", spec: "ttlSecondsAfterFinished: 3600",
		finding: backoffLimitExceeded, cause: "container main, which exited with code 4",
	},
	{name: "hourly-1", script: "exit 1", cronJob: "hourly", finding: backoffLimitExceeded, owner: "CronJob/hourly", cause: "exited with code 1"},
	{
		name: "helm-hook", script: "exit 1", metadata: "annotations: {meta.helm.sh/release-name: shop}",
		finding: backoffLimitExceeded, owner: "HelmRelease/shop", cause: "exited with code 1",
	},
	{
		name: "exceeding-deadline", script: scriptSleep, spec: "activeDeadlineSeconds: 1",
		finding: "Suspicious DeadlineExceeded", cause: "DeadlineExceeded",
	},
	{
		name: "failing-by-policy", script: "exit 42", spec: "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}",
		finding: "Suspicious PodFailurePolicy", cause: "exited with code 42",
	},
	{
		name: "failing-index", script: `test "$JOB_COMPLETION_INDEX" = 0`, spec: "{" + indexed + "completions: 2, parallelism: 2}",
		finding: "Suspicious FailedIndexes", cause: "exited with code 1",
	},
	{
		name: "failing-indexes", script: "exit 1", spec: "{" + indexed + "completions: 3, parallelism: 3, maxFailedIndexes: 1}",
		finding: "Suspicious MaxFailedIndexesExceeded", cause: "exited with code 1",
	},
	{name: "failed-long-ago", spec: "managedBy: " + absentManager, finding: "Zombie FailedLongAgo"},            // the test writes its status
	{name: "finished-long-ago", spec: "managedBy: " + absentManager, finding: "Suspicious FinishedNotCleaned"}, // the test writes its status

	// Not ending.
	{name: "blocked-deletion", metadata: "finalizers: [" + blockingFinalizer + "]", finding: "Zombie StuckTerminating"}, // the test deletes it
	// The test deletes it.
	{name: "foreground-deletion", script: scriptIgnoreSIGTERM, pod: longGrace, finding: "Zombie StuckTerminating", cause: "Terminating: 1 Pod on node"},
	// The test sets its deadline.
	{name: "stuck-failure", script: scriptIgnoreSIGTERM, pod: longGrace, finding: "Zombie FailureTargetStuck", cause: "Terminating: 1 Pod on node"},
	{ // the test raises its parallelism
		name: "stuck-success", script: `test "$JOB_COMPLETION_INDEX" = 1 && exit; ` + scriptIgnoreSIGTERM, pod: longGrace,
		spec:    "{" + indexed + "completions: 2, parallelism: 1, successPolicy: {rules: [{succeededIndexes: '1'}]}}",
		finding: "Zombie SuccessCriteriaStuck", cause: "Terminating: 1 Pod on node",
	},
}

func newFixtureJob(t *testing.T, f *jobFixture) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: f.name, Namespace: reportedNamespace}}
	job.Spec.BackoffLimit = new(int32(0))
	container := func(name, script string) corev1.Container {
		return corev1.Container{Name: name, Image: busyboxImage, Command: []string{"sh", "-c", script}, SecurityContext: restrictedSecurityContext()}
	}
	pod := &job.Spec.Template.Spec
	pod.RestartPolicy, pod.TerminationGracePeriodSeconds, pod.SecurityContext = corev1.RestartPolicyNever, new(int64(1)), restrictedPodSecurityContext()
	pod.Containers = []corev1.Container{container("main", f.script)}
	if f.helper != "" {
		pod.Containers = append(pod.Containers, container("helper", f.helper))
	}
	if f.init != "" {
		pod.InitContainers = []corev1.Container{container("init", f.init)}
	}
	if f.cronJob != "" {
		job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: f.cronJob, Controller: new(true)}}
	}
	for part, fields := range map[any]string{&job.ObjectMeta: f.metadata, &job.Spec: f.spec, pod: f.pod, &pod.Containers[0]: f.main} {
		require.NoError(t, yaml.UnmarshalStrict([]byte(fields), part))
	}
	return job
}

// createJobFixtures creates all Jobs and what they need, and removes what blocks their deletion at the end of the test.
func createJobFixtures(t *testing.T) {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "licenses", Namespace: reportedNamespace}}
	quota.Spec.Hard = corev1.ResourceList{"requests." + limitedResource: resource.MustParse("0")}
	require.NoError(t, cluster.Create(t.Context(), quota))
	cronJobs := map[string]*batchv1.CronJob{"nightly": createCronJob(t, "nightly"), "hourly": createCronJob(t, "hourly")}
	t.Cleanup(func() { releaseStuckJobs(t) })
	for i := range jobFixtures {
		job := newFixtureJob(t, &jobFixtures[i])
		if len(job.OwnerReferences) > 0 {
			job.OwnerReferences[0].UID = cronJobs[job.OwnerReferences[0].Name].UID
		}
		if failed, isLater := strings.CutSuffix(job.Name, "-2"); isLater {
			key := client.ObjectKey{Namespace: reportedNamespace, Name: failed + "-1"}
			poll.Until(t, key.Name+" to fail", func() bool { // a CronJob creates its next run later, too
				return slices.ContainsFunc(get(t, &batchv1.Job{}, key).Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobFailed })
			})
		}
		require.NoError(t, cluster.Create(t.Context(), job))
	}
	now := time.Now()
	writeFinishedStatus(t, "failed-long-ago", now, batchv1.JobFailureTarget, batchv1.JobFailed)
	writeFinishedStatus(t, "finished-long-ago", now, batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	deletePodOf(t, "running-again", isRunning)
	deletePodOf(t, "unschedulable-again", func(*corev1.Pod) bool { return true })
	deleteJob(t, "blocked-deletion", metav1.DeletePropagationBackground)
	for _, name := range stuckFixtures {
		waitForPodOf(t, name, isRunning)
	}
	deleteJob(t, "foreground-deletion", metav1.DeletePropagationForeground)
	patchJobSpec(t, "stuck-failure", `{"activeDeadlineSeconds": 1}`)
	patchJobSpec(t, "stuck-success", `{"parallelism": 2}`)
}

// createCronJob creates a CronJob that never runs by itself.
func createCronJob(t *testing.T, name string) *batchv1.CronJob {
	t.Helper()
	cronJob := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: reportedNamespace}}
	cronJob.Spec.Schedule, cronJob.Spec.Suspend = "0 2 * * *", new(true)
	cronJob.Spec.JobTemplate.Spec = newFixtureJob(t, &jobFixture{}).Spec
	require.NoError(t, cluster.Create(t.Context(), cronJob))
	return cronJob
}

// waitForPodOf returns the first Pod of the Job for which isWanted is true.
func waitForPodOf(t *testing.T, name string, isWanted func(*corev1.Pod) bool) (found *corev1.Pod) {
	t.Helper()
	poll.Until(t, "the wanted Pod of the Job "+name, func() bool {
		pods := podsWith(t, reportedNamespace, map[string]string{batchv1.JobNameLabel: name})
		for i := range pods {
			if found == nil && isWanted(&pods[i]) {
				found = &pods[i]
			}
		}
		return found != nil
	})
	return found
}

func deletePodOf(t *testing.T, name string, isWanted func(*corev1.Pod) bool) {
	t.Helper()
	deleted := waitForPodOf(t, name, isWanted)
	require.NoError(t, cluster.Delete(t.Context(), deleted))
	waitForPodOf(t, name, func(pod *corev1.Pod) bool { return pod.UID != deleted.UID && pod.Status.Phase == deleted.Status.Phase })
}

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

func patchJobSpec(t *testing.T, name, spec string) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: reportedNamespace}}
	require.NoError(t, cluster.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))))
}

func deleteJob(t *testing.T, name string, propagation metav1.DeletionPropagation) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: reportedNamespace}}
	require.NoError(t, cluster.Delete(t.Context(), job, client.PropagationPolicy(propagation)))
}

// writeFinishedStatus makes a Job have finished eight days ago, as its controller would.
func writeFinishedStatus(t *testing.T, name string, now time.Time, conditions ...batchv1.JobConditionType) {
	t.Helper()
	job := get(t, &batchv1.Job{}, client.ObjectKey{Namespace: reportedNamespace, Name: name})
	at := metav1.NewTime(now.Add(-8 * 24 * time.Hour))
	job.Status.StartTime = &at
	for _, kind := range conditions {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "Planted", LastTransitionTime: at,
		})
		if kind == batchv1.JobComplete {
			job.Status.CompletionTime, job.Status.Succeeded = &at, 1
		}
	}
	require.NoError(t, cluster.Status().Update(t.Context(), job))
}

// releaseStuckJobs removes what blocks the deletion of Jobs, because nothing else does.
func releaseStuckJobs(t *testing.T) {
	ctx := context.Background()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "blocked-deletion", Namespace: reportedNamespace}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(cluster.Patch(ctx, job, patch)); err != nil {
		t.Error(err)
	}
	for _, name := range stuckFixtures {
		err := cluster.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(reportedNamespace), client.MatchingLabels{batchv1.JobNameLabel: name}, client.GracePeriodSeconds(0))
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}
