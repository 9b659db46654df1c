package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// unschedulableClass is a RuntimeClass that no node supports, so that no simulated node runs the Pod
// and the test sets its status.
const unschedulableClass = "test-unschedulable"

// sessionTest checks one AgenticSession.
type sessionTest struct {
	t   *testing.T
	key client.ObjectKey
}

// createSession creates a session and its SessionRunner in a namespace that enforces the Pod
// Security Standard restricted.
func createSession(t *testing.T, change ...func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner)) *sessionTest {
	t.Helper()
	return createSessionIn(t, newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}), "fix", change...)
}

func createSessionIn(t *testing.T, ns, name string, change ...func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner)) *sessionTest {
	t.Helper()
	r := newUnschedulableRunner(t, ns)
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	s.Spec.Prompt = "do it"
	for _, c := range change {
		c(s, r)
	}
	createIfMissing(t, r)
	if err := cluster.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return &sessionTest{t, client.ObjectKeyFromObject(s)}
}

// newUnschedulableRunner returns a SessionRunner whose Pods no simulated node runs.
func newUnschedulableRunner(t *testing.T, ns string) *v1alpha1.SessionRunner {
	t.Helper()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: unschedulableClass}, Handler: "runc"}
	class.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"test.yardmaster.dev/no-such-node": "true"}}
	createIfMissing(t, class)
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}}
	r.Spec.Image, testbuilder.RunnerPod(&r.Spec).SecurityContext.RunAsUser, testbuilder.RunnerPod(&r.Spec).RuntimeClassName = "runner:1", new(int64(65532)), new(unschedulableClass)
	return r
}

// createIfMissing creates an object, unless it exists.
func createIfMissing(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreAlreadyExists(cluster.Create(t.Context(), object)); err != nil {
		t.Fatal(err)
	}
}

func (s *sessionTest) getSession() *v1alpha1.AgenticSession {
	s.t.Helper()
	object := &v1alpha1.AgenticSession{}
	if err := cluster.Get(s.t.Context(), s.key, object); err != nil {
		s.t.Fatal(err)
	}
	return object
}

func (s *sessionTest) waitForPhase(phase v1alpha1.SessionPhase) *v1alpha1.AgenticSession {
	s.t.Helper()
	poll.Until(s.t, "phase "+string(phase), func() bool { return s.getSession().Status.Phase == phase })
	return s.getSession()
}

func (s *sessionTest) patchSpec(spec string) {
	s.t.Helper()
	if err := cluster.Patch(s.t.Context(), s.getSession(), client.RawPatch(mergePatch, []byte(`{"spec":`+spec+`}`))); err != nil {
		s.t.Fatal(err)
	}
}

// listJobs lists the session's Jobs.
func (s *sessionTest) listJobs() []batchv1.Job {
	s.t.Helper()
	var jobs batchv1.JobList
	if err := cluster.List(s.t.Context(), &jobs, client.InNamespace(s.key.Namespace), client.MatchingLabels{agenticsession.LabelSession: s.key.Name}); err != nil {
		s.t.Fatal(err)
	}
	return jobs.Items
}

// waitForPod waits for the Pod of the open attempt's Job.
func (s *sessionTest) waitForPod() *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	poll.Until(s.t, "a Pod", func() bool {
		var pods corev1.PodList
		selector := client.MatchingLabels{batchv1.JobNameLabel: s.getSession().Status.Attempt.JobName}
		if err := cluster.List(s.t.Context(), &pods, client.InNamespace(s.key.Namespace), selector); err != nil || len(pods.Items) == 0 {
			return false
		}
		found = &pods.Items[0]
		return true
	})
	return found
}

// startRunner and exitRunner set the status of the Pod as a kubelet does.
func (s *sessionTest) startRunner() {
	s.t.Helper()
	s.updatePodStatus(s.waitForPod(), func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: v1alpha1.RunnerContainer, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
}

func (s *sessionTest) exitRunner(code int32, message string) {
	s.t.Helper()
	s.updatePodStatus(s.waitForPod(), func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: metav1.Now(), FinishedAt: metav1.Now()},
		}}}
	})
}

func (s *sessionTest) updatePodStatus(pod *corev1.Pod, change func(pod *corev1.Pod)) {
	s.t.Helper()
	poll.Until(s.t, "the Pod's status to be written", func() bool {
		if err := cluster.Get(s.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			s.t.Fatal(err)
		}
		change(pod)
		return cluster.Status().Update(s.t.Context(), pod) == nil
	})
}

func TestSessionRunsAndReportsItsResult(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.Interactive = true
		s.Spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"TOKEN": "hunter2"}
	})
	s.waitForPhase(v1alpha1.SessionCreating)
	policy := &networkingv1.NetworkPolicy{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: "fix-session"}, policy); err != nil {
		t.Fatal(err)
	}
	if jobs := s.listJobs(); len(jobs) != 1 || jobs[0].CreationTimestamp.Before(&policy.CreationTimestamp) {
		t.Errorf("%d Jobs, the first created before the NetworkPolicy", len(jobs))
	}
	s.startRunner()
	running := s.waitForPhase(v1alpha1.SessionRunning)
	for _, condition := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionSpecAccepted, v1alpha1.ConditionNetworkRestricted,
		v1alpha1.ConditionRunnerStarted,
	} {
		if !meta.IsStatusConditionTrue(running.Status.Conditions, condition) {
			t.Errorf("%s is not True: %+v", condition, meta.FindStatusCondition(running.Status.Conditions, condition))
		}
	}
	if running.Spec.UserContext == nil || running.Spec.UserContext.UserID == "" {
		t.Error("the session has no userContext")
	}
	s.exitRunner(0, `{"summary": "done", "costUSD": 0.25}`)
	done := s.waitForPhase(v1alpha1.SessionCompleted)
	if done.Status.Result == nil || done.Status.Result.Summary != "done" || *done.Status.TotalCostUSD != "0.25" {
		t.Errorf("%+v", done.Status)
	}
	s.patchSpec(`{"rerun": {"id": "2"}}`)
	s.waitForPhase(v1alpha1.SessionCreating)
	if job := s.getSession().Status.Attempt.JobName; job != "fix-r2-a1" {
		t.Errorf("Job %s, want fix-r2-a1", job)
	}
}

func TestRepositoriesOfASessionAreInItsStatus(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		s.Spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/shop.git"}, AutoPush: true}}
		r.Spec.Git = &v1alpha1.SessionGit{SecretRef: &v1alpha1.LocalReference{Name: "forge"}, Repositories: []string{"git.example/*"}, Forge: &v1alpha1.SessionForge{Type: "GitHub"}}
	})
	s.waitForPhase(v1alpha1.SessionCreating) // the namespace accepts the container with the credentials
	s.startRunner()
	s.exitRunner(0, `{"repositories": [{"name": "shop", "branch": "session/fix", "commit": "abc", "pushed": true, "pullRequestURL": "https://git.example/shop/pull/1"}]}`)
	done := s.waitForPhase(v1alpha1.SessionCompleted)
	want := v1alpha1.SessionRepositoryResult{Name: "shop", Branch: "session/fix", Commit: "abc", Pushed: true, PullRequestURL: "https://git.example/shop/pull/1"}
	if result := done.Status.Result; result == nil || len(result.Repositories) != 1 || result.Repositories[0] != want {
		t.Errorf("%+v", done.Status.Result)
	}
}

// The claim with the only copy of work is not deleted with its session; the claim of another session is.
func TestAWorkspaceWithWorkThatWasNotPushedIsKept(t *testing.T) {
	t.Parallel()
	for report, phase := range map[string]v1alpha1.SessionPhase{
		`{"name": "shop", "branch": "session/fix", "error": "rejected"}`: v1alpha1.SessionFailed,
		`{"name": "shop", "branch": "session/fix", "pushed": true}`:      v1alpha1.SessionCompleted,
	} {
		s := createSession(t, setPersistentWorkspace, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
			s.Spec.Repos = []v1alpha1.SessionRepo{{
				GitSource: v1alpha1.GitSource{URL: "https://git.example/shop.git"}, AutoPush: true, Push: v1alpha1.RepoPush{Branch: "fix/bug", Base: "release", Draft: true},
			}}
			r.Spec.Git = &v1alpha1.SessionGit{}
		})
		s.waitForPhase(v1alpha1.SessionCreating)
		s.startRunner()
		s.exitRunner(0, `{"repositories": [`+report+`]}`)
		done := s.waitForPhase(phase)
		arrived := phase == v1alpha1.SessionCompleted
		if got := meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ConditionPushed); got != arrived {
			t.Errorf("conditions %+v", done.Status.Conditions)
		}
		claim := corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: done.Namespace, Name: done.Status.Workspace.ClaimRef.Name}
		poll.Until(t, "the owners of the claim to be those of a claim that is kept, or not", func() bool {
			err := cluster.Get(t.Context(), key, &claim)
			return err == nil && (len(claim.OwnerReferences) == 0) == !arrived
		})
	}
}

func TestTranscriptOfASessionIsInItsStatus(t *testing.T) {
	t.Parallel()
	for location, archive := range map[string]*v1alpha1.SessionArchive{
		"s3://transcripts/a.ndjson": {Archive: v1alpha1.Archive{S3: &v1alpha1.ArchiveS3{Endpoint: "https://s3.example", Bucket: "transcripts", SecretRef: v1alpha1.LocalReference{Name: "archive"}}}},
		"a.ndjson":                  {Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "transcripts"}}},
	} {
		s := createSession(t, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
			s.Spec.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/shop.git"}, Depth: new(int32(1))}}
			r.Spec.Archive = archive
		})
		s.waitForPhase(v1alpha1.SessionCreating) // the namespace accepts the container with the archive
		s.startRunner()
		s.exitRunner(0, `{"transcript": {"location": "`+location+`"}}`)
		done := s.waitForPhase(v1alpha1.SessionCompleted)
		if result := done.Status.Result; result == nil || result.Transcript == nil || result.Transcript.Location != location {
			t.Errorf("%+v", done.Status.Result)
		}
	}
}

func TestSessionStopsAndResumes(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.Workspace = &v1alpha1.WorkspaceClaim{}
	})
	s.waitForPod()
	s.waitForPhase(v1alpha1.SessionCreating)
	s.patchSpec(`{"suspend": true}`)
	s.waitForPhase(v1alpha1.SessionStopped)
	if jobs := s.listJobs(); len(jobs) != 0 {
		t.Errorf("%d Jobs are left", len(jobs))
	}
	s.patchSpec(`{"suspend": false}`)
	s.waitForPhase(v1alpha1.SessionCreating)
	if job := s.getSession().Status.Attempt.JobName; job != "fix-r1-a2" {
		t.Errorf("Job %s, want fix-r1-a2", job)
	}
}

func TestSessionWaitsForItsSessionRunner(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) { s.Spec.Runner = "later" })
	poll.Until(t, "the condition DependenciesReady", func() bool {
		c := meta.FindStatusCondition(s.getSession().Status.Conditions, v1alpha1.ConditionBlocked)
		return c != nil && c.Reason == v1alpha1.ReasonRunnerNotFound
	})
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "later", Namespace: s.key.Namespace}}
	r.Spec.Image, testbuilder.RunnerPod(&r.Spec).RuntimeClassName = "runner:1", new(unschedulableClass)
	if err := cluster.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.waitForPhase(v1alpha1.SessionCreating)
}

func TestRejectedPodFailsTheSession(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		testbuilder.RunnerPod(&r.Spec).RuntimeClassName = new("does-not-exist")
	})
	failed := s.waitForPhase(v1alpha1.SessionFailed)
	if run := failed.Status.Attempts[0]; run.Reason != v1alpha1.ReasonPodRejected || len(s.listJobs()) != 0 {
		t.Errorf("%+v, %d Jobs", run, len(s.listJobs()))
	}
}

// Without waiting, each attempt would be an error in the log, and nothing in the status.
func TestSessionWaitsForItsServiceAccount(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		testbuilder.RunnerPod(&r.Spec).ServiceAccountName = "later"
	})
	poll.Until(t, "the condition DependenciesReady", func() bool {
		c := meta.FindStatusCondition(s.getSession().Status.Conditions, v1alpha1.ConditionBlocked)
		return c != nil && c.Reason == v1alpha1.ReasonServiceAccountNotFound
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "later", Namespace: s.key.Namespace}}
	if err := cluster.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	s.waitForPhase(v1alpha1.SessionCreating)
}

func TestSessionWaitsForQuota(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: ns}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	if err := cluster.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the quota to be counted", func() bool {
		return cluster.Get(t.Context(), client.ObjectKeyFromObject(quota), quota) == nil && quota.Status.Hard != nil
	})
	s := createSessionIn(t, ns, "fix")
	poll.Until(t, "the condition JobCreated to report the quota", func() bool {
		c := meta.FindStatusCondition(s.getSession().Status.Conditions, v1alpha1.ConditionBlocked)
		return c != nil && c.Reason == v1alpha1.ReasonQuotaExceeded
	})
	if err := cluster.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	s.waitForPhase(v1alpha1.SessionCreating)
}

func TestObjectOfAnotherOwnerIsNotAdoptedBySession(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "fix-session", Namespace: ns}}
	if err := cluster.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	s := createSessionIn(t, ns, "fix")
	poll.Until(t, "the condition DependenciesReady to report the name", func() bool {
		c := meta.FindStatusCondition(s.getSession().Status.Conditions, v1alpha1.ConditionBlocked)
		return c != nil && c.Reason == v1alpha1.ReasonNameTaken
	})
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(account), account); err != nil || len(account.OwnerReferences) > 0 {
		t.Errorf("the ServiceAccount was changed: %v, %+v", err, account.OwnerReferences)
	}
	if err := cluster.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	s.waitForPhase(v1alpha1.SessionCreating)
}

func TestContinuingSessionKeepsWorkspaceOfDeletedParent(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	first := createSessionIn(t, ns, "first", func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.Workspace = &v1alpha1.WorkspaceClaim{}
	})
	second := createSessionIn(t, ns, "second", func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.ContinueFrom = &v1alpha1.LocalReference{Name: "first"}
	})
	first.waitForPod()
	poll.Until(t, "the second session to wait", func() bool {
		c := meta.FindStatusCondition(second.getSession().Status.Conditions, v1alpha1.ConditionBlocked)
		return c != nil && c.Reason == v1alpha1.ReasonParentNotFinished
	})
	first.exitRunner(0, "")
	first.waitForPhase(v1alpha1.SessionCompleted)
	second.waitForPhase(v1alpha1.SessionCreating)
	if err := cluster.Delete(t.Context(), first.getSession()); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	poll.Until(t, "the second session to be the claim's only owner", func() bool {
		if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "first-workspace"}, claim); err != nil {
			t.Fatal(err)
		}
		return len(claim.OwnerReferences) == 1 && claim.OwnerReferences[0].Name == "second" && claim.DeletionTimestamp == nil
	})
}

func TestSessionsContinuingOneParentRunOneAtATime(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	first := createSessionIn(t, ns, "first", func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.Workspace = &v1alpha1.WorkspaceClaim{}
	})
	const children = 8
	for i := range children { // all wait for the end of the first session
		createSessionIn(t, ns, fmt.Sprintf("child-%d", i), func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
			s.Spec.ContinueFrom = &v1alpha1.LocalReference{Name: "first"}
		})
	}
	first.exitRunner(0, "")
	for range children {
		running := &sessionTest{t, client.ObjectKey{Namespace: ns}}
		poll.Until(t, "the next session to start", func() bool {
			var jobs batchv1.JobList
			if err := cluster.List(t.Context(), &jobs, client.InNamespace(ns)); err != nil {
				t.Fatal(err)
			}
			var live []string
			for i := range jobs.Items {
				if jobs.Items[i].Labels[agenticsession.LabelSession] != "first" && len(jobs.Items[i].Status.Conditions) == 0 {
					live = append(live, jobs.Items[i].Labels[agenticsession.LabelSession])
				}
			}
			if len(live) > 1 {
				t.Fatalf("%v run in one workspace", live)
			}
			if len(live) == 1 {
				running.key.Name = live[0]
			}
			return len(live) == 1
		})
		running.exitRunner(0, "")
		running.waitForPhase(v1alpha1.SessionCompleted)
	}
}

func TestDeletedSessionLeavesNoChildObjects(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		s.Spec.Interactive, s.Spec.Workspace, r.Spec.ActivityLease = true, &v1alpha1.WorkspaceClaim{}, true
	})
	s.waitForPod()
	object := s.waitForPhase(v1alpha1.SessionCreating)
	if len(object.Finalizers) > 0 {
		t.Errorf("the session has finalizers: %v", object.Finalizers)
	}
	if err := cluster.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{
		&batchv1.JobList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{},
	} {
		poll.Until(t, "all objects to be deleted", func() bool {
			err := cluster.List(t.Context(), list, client.InNamespace(s.key.Namespace), client.HasLabels{agenticsession.LabelSessionUID})
			return err == nil && meta.LenList(list) == 0
		})
	}
}

func TestSessionIsDeletedAfterItsTTL(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.TTLSecondsAfterFinished = new(int32(1))
	})
	s.exitRunner(0, "")
	poll.Until(t, "the session to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), s.key, &v1alpha1.AgenticSession{}))
	})
}

// The time in which a Pod waits does not count, and more time is given to a session that runs.
func TestTimeoutOfARunningSessionCanBeExtended(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.Limits.Timeout = v1alpha1.NewDuration(10 * time.Minute)
	})
	waitForDeadline := func(seconds int64) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("a deadline %d seconds after the start of the runner", seconds), func() bool {
			jobs, since := s.listJobs(), s.getSession().Status.Attempt.ActiveSince
			if len(jobs) != 1 || jobs[0].Status.StartTime == nil || jobs[0].Spec.ActiveDeadlineSeconds == nil || since == nil {
				return false
			}
			return *jobs[0].Spec.ActiveDeadlineSeconds == seconds+int64(since.Sub(jobs[0].Status.StartTime.Time).Seconds())
		})
	}
	s.startRunner()
	waitForDeadline(600)
	s.patchSpec(`{"limits": {"timeout": "15m"}}`)
	waitForDeadline(900)
	s.patchSpec(`{"limits": {"timeout": "1s"}}`)
	if failed := s.waitForPhase(v1alpha1.SessionFailed); failed.Status.Attempts[0].Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Errorf("failed with %s", failed.Status.Attempts[0].Reason)
	}
}

func TestIdleSessionIsStopped(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		r.Spec.Limits.InactivityTimeout, r.Spec.ActivityLease = v1alpha1.NewDuration(10*time.Second), true
	})
	s.startRunner()
	s.waitForPhase(v1alpha1.SessionRunning)
	renewal := []byte(`{"spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}}`)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: agenticsession.LeaseName(s.key.Name)}}
	if err := cluster.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, renewal)); err != nil {
		t.Fatal(err)
	}
	stopped := s.waitForPhase(v1alpha1.SessionStopped)
	if stopped.Status.StoppedReason != v1alpha1.StopInactivity {
		t.Errorf("stopped for %s", stopped.Status.StoppedReason)
	}
}

// reportCost writes this annotation into the Lease, as a runner does.
func (s *sessionTest) reportCost(annotation string) {
	s.t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{agenticsession.AnnotationCost: annotation}}})
	if err != nil {
		s.t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: agenticsession.LeaseName(s.key.Name)}}
	if err := cluster.Patch(s.t.Context(), lease, client.RawPatch(types.MergePatchType, raw)); err != nil {
		s.t.Fatal(err)
	}
}

func TestSessionIsStoppedAtItsCostLimit(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		s.Spec.Limits.MaxCostUSD, s.Spec.Retry = new(v1alpha1.Number("1.5")), &v1alpha1.SessionRetry{Retry: v1alpha1.Retry{Limit: new(int32(5))}, OnDisruption: true}
		r.Spec.Limits.MaxCostUSD, r.Spec.ActivityLease = new(v1alpha1.Number("2")), true
	})
	s.startRunner()
	s.waitForPhase(v1alpha1.SessionRunning)
	for _, hostile := range []string{"fix-r1-a1=-1", "fix-r1-a1=NaN", "fix-r1-a1=1e9", "fix-r2-a1=100", strings.Repeat("9", 1000), "fix-r1-a1=1.25"} {
		s.reportCost(hostile)
	}
	s.reportCost("fix-r1-a1=0.25")
	if running := s.getSession(); running.Status.Phase != v1alpha1.SessionRunning {
		t.Errorf("the session is %s below its limit", running.Status.Phase)
	}
	s.reportCost("fix-r1-a1=1.75")
	failed := s.waitForPhase(v1alpha1.SessionFailed)
	if run := failed.Status.Attempts[0]; run.Reason != v1alpha1.ReasonBudgetExceeded || *run.CostUSD != "1.75" || *failed.Status.TotalCostUSD != "1.75" {
		t.Errorf("%+v", run)
	}
	s.patchSpec(`{"rerun": {"id": "2"}}`)
	poll.Until(t, "the second run to fail", func() bool { return len(s.getSession().Status.Attempts) == 2 })
	if run := s.getSession().Status.Attempts[1]; run.Reason != v1alpha1.ReasonBudgetExceeded || !strings.Contains(run.Message, "increase maxCostUSD of the session") {
		t.Errorf("%+v", run)
	}
	s.patchSpec(`{"rerun": {"id": "3"}, "limits": {"maxCostUSD": 2}}`)
	s.waitForPhase(v1alpha1.SessionCreating)
}

// The API server accepts all examples except refused.yaml.
func TestAgenticSessionExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(repositoryRoot, "examples", "agenticsession", "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	agents, err := filepath.Glob(filepath.Join(repositoryRoot, "examples", "agents", "*", "agent.yaml"))
	if err != nil || len(agents) < 4 {
		t.Fatalf("%v, %v", agents, err)
	}
	for _, file := range append(files, agents...) {
		t.Run(strings.TrimPrefix(file, repositoryRoot), func(t *testing.T) {
			ns := namespace(t)
			strict := strictClient(t, &warningList{})
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for document := range strings.SplitSeq(string(raw), "\n---\n") {
				object, err := decode([]byte(document))
				if err != nil {
					t.Fatal(err)
				}
				object.SetNamespace(ns)
				err = strict.Create(t.Context(), object)
				if refused := filepath.Base(file) == "refused.yaml"; (err != nil) != refused {
					t.Errorf("%s: %v", object.GetName(), err)
				}
			}
			wantAccepted(t, ns)
		})
	}
}

// wantAccepted waits until the operator accepts all sessions of the namespace.
func wantAccepted(t *testing.T, ns string) {
	t.Helper()
	poll.Until(t, "its sessions to be accepted", func() bool {
		var list v1alpha1.AgenticSessionList
		if err := cluster.List(context.Background(), &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if !meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionSpecAccepted) {
				raw, _ := json.Marshal(list.Items[i].Status.Conditions)
				t.Logf("%s: %s", list.Items[i].Name, raw)
				return false
			}
		}
		return true
	})
}

// Anyone may delete the inputs of a stopped session and create a Secret with their name.
func TestOldInputsAreDeletedAndASecretOfAnotherOwnerIsKept(t *testing.T) {
	t.Parallel()
	for title, isReplaced := range map[string]bool{"the session's inputs": false, "a Secret of another owner": true} {
		t.Run(title, func(t *testing.T) {
			s := createSession(t)
			s.waitForPod()
			s.patchSpec(`{"suspend": true}`)
			stopped := s.waitForPhase(v1alpha1.SessionStopped)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: stopped.Status.Attempts[0].InputsRef.Name}}
			if isReplaced {
				if err := cluster.Delete(t.Context(), secret.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				if err := cluster.Create(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			s.patchSpec(`{"suspend": false, "displayName": "another name"}`)
			// The operator records the Job after it has deleted the old inputs.
			if creating := s.waitForPhase(v1alpha1.SessionCreating); creating.Status.Attempt.InputsRef.Name == secret.Name {
				t.Fatal("the inputs have not changed")
			}
			err := cluster.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
			if isReplaced && err != nil || !isReplaced && !apierrors.IsNotFound(err) {
				t.Errorf("reading the Secret: %v", err)
			}
		})
	}
}
