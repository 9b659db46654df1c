package sequentialjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func archiveInAClaim() *v1alpha1.SequenceArchive {
	return &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
}

// startArchivedRun starts a run whose logs are archived in a claim.
func startArchivedRun(t *testing.T, sj *testbuilder.SequentialJobBuilder) *testEnv {
	t.Helper()
	object := sj.Obj()
	object.Spec.Archive = archiveInAClaim()
	s := newTestEnv(t, object)
	s.reconcile()
	return s
}

// archiveJob returns the newest Job that archives logs.
func (s *testEnv) archiveJob() *batchv1.Job {
	s.t.Helper()
	if len(s.createdArchives) == 0 {
		s.t.Fatal("no logs are archived")
	}
	return s.jobNamed(s.createdArchives[len(s.createdArchives)-1].Name)
}

// endArchive ends this Job, with a Pod that reports a result.
func (s *testEnv) endArchive(code int32, result string) Decision {
	s.t.Helper()
	job := testbuilder.Job(s.archiveJob())
	if code == 0 {
		job.Complete(s.now)
	} else {
		job.Failed(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", s.now)
	}
	s.pods[job.Obj().UID] = []corev1.Pod{testbuilder.Pod(archiveContainer).Exited(code, result).Obj()}
	return s.reconcile()
}

// wantArchive compares the archive in the status: "run: state, reason: message".
func (s *testEnv) wantArchive(want string) {
	s.t.Helper()
	got := ""
	if a := s.sj.Status.Archive; a != nil {
		state := "Archiving"
		if a.Error != "" {
			state = "Failed"
		} else if a.CompletionTime != nil {
			state = "Archived"
		}
		got = fmt.Sprintf("%d: %s", a.Run, state)
		if a.Reason != "" {
			got += ", " + a.Reason
		}
		if text := cmp.Or(a.Error, a.Message); text != "" {
			got += ": " + text
		}
	}
	if got != want {
		s.t.Errorf("archive %q, want %q", got, want)
	}
}

// archives lets the run archive its logs in a claim.
func archives(s *testEnv) { s.sj.Spec.Archive = archiveInAClaim() }

func archived(want string) func(*testEnv) { return func(s *testEnv) { s.wantArchive(want) } }

func endArchive(code int32, result string) func(*testEnv) {
	return func(s *testEnv) {
		s.events = nil
		s.endArchive(code, result)
	}
}

// archiveJobs checks how many Jobs were created that archive logs.
func archiveJobs(want int) func(*testEnv) {
	return func(s *testEnv) {
		if got := len(s.createdArchives); got != want {
			s.t.Errorf("%d Jobs archive logs, want %d", got, want)
		}
	}
}

// isExpired checks whether the SequentialJob is deleted.
func isExpired(want bool) func(*testEnv) {
	return func(s *testEnv) {
		if got := s.decide(nil).DeleteExpired; got != want {
			s.t.Errorf("it is deleted: %t, want %t", got, want)
		}
	}
}

func TestLogsAreArchivedWhenTheRunHasEnded(t *testing.T) {
	const lost = "Failed, JobLost: the Jobs of the run were deleted before their logs were archived"
	expiring := func() *testbuilder.SequentialJobBuilder { return sequence("build").TTLAfterFinished(0) }
	isCompleted := phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
	var finished metav1.Time
	runScenarios(t, map[string]scenario{
		"completed": {sequence("build", "test"), story{
			archives, succeed("build"), archived(""), archiveJobs(0), succeed("test"), archived("1: Archiving"),
			func(s *testEnv) { finished = *s.sj.Status.CompletionTime }, wait(time.Second),
			endArchive(0, "2 logs, 10 bytes\n"), archived("1: Archived: 2 logs, 10 bytes"), archiveJobs(1), events(v1alpha1.EventLogsArchived),
			func(s *testEnv) {
				status := &s.sj.Status
				if !status.CompletionTime.Equal(&finished) || status.Archive.Location != "ns/a/"+string(s.sj.UID)+"/run-1" {
					s.t.Errorf("status %+v", status)
				}
			},
		}},
		"failed": {sequence("build", "test"), story{archives, fail("build"), archived("1: Archiving"), endArchive(0, ""), archived("1: Archived")}},
		"a failure to archive does not fail the run": {sequence("build"), story{
			archives, succeed("build"), endArchive(1, "listing Pods: 403"), isCompleted, events(v1alpha1.EventArchiveFailed),
			archived("1: Failed, JobFailed: container archive exited with code 1: listing Pods: 403"),
		}},
		"a rerun does not wait, and its logs are archived afterwards": {sequence("build"), story{
			archives, succeed("build"), rerun("Start"), created("build", "build"), succeed("build"), isCompleted,
			archived("1: Archiving"), archiveJobs(1),
			func(s *testEnv) {
				first := s.archiveJob()
				if d := s.endArchive(0, ""); len(d.DeleteJobs) != 1 || d.DeleteJobs[0].Name != first.Name || s.archiveJob().Name == first.Name {
					s.t.Errorf("%v are deleted, not the Job that has archived the first run", d.DeleteJobs)
				}
			},
			archived("2: Archiving"), archiveJobs(2), endArchive(0, ""), archived("2: Archived"),
		}},
		"a Job that expired at its end is not created again": {sequence("build"), story{
			archives, succeed("build"), rerun("Start"), succeed("build"),
			func(s *testEnv) {
				testbuilder.Job(s.archiveJob()).Complete(s.now)
				// The Job of the second run has expired too, so that the operator lists all Jobs.
				s.expired, s.jobs = []*batchv1.Job{s.archiveJob()}, s.jobs[:1]
			},
			wait(time.Minute), archived("2: " + lost), archiveJobs(1),
		}},
		"it expires afterwards, also if the cache does not show its Jobs": {expiring(), story{
			archives, func(s *testEnv) { s.uncached[s.newestJob("build").Name] = true }, succeed("build"), archived("1: Archiving"),
			isExpired(false), wait(time.Minute), isExpired(false), endArchive(0, ""), isExpired(true),
		}},
		"it expires if its Jobs were deleted before": {expiring(), story{
			succeed("build"), func(s *testEnv) { s.jobs = nil },
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Archive = archiveInAClaim() }), archived("1: " + lost), isExpired(true),
		}},
		"an operator that does not know its image archives nothing": {sequence("build"), story{
			archives, func(s *testEnv) { s.archiveImage = "" }, succeed("build"),
			archived("1: Failed, ImageUnknown: the operator does not know its own image: set its flag --operator-pod or --worker-image"),
		}},
	})
}

func TestExpiredSequenceIsDeletedAfterTheDeadlineOfItsArchive(t *testing.T) {
	s := startArchivedRun(t, sequence("build").TTLAfterFinished(0))
	s.succeedStep("build")
	decision := s.decide(nil)
	if decision.RequeueAfter == 0 || decision.RequeueAfter > archiveDeadline || decision.DeleteExpired {
		t.Errorf("decides again after %s, deletes: %t", decision.RequeueAfter, decision.DeleteExpired)
	}
	s.now = s.now.Add(archiveDeadline)
	decision = s.decide(nil)
	s.record(decision)
	if !decision.DeleteExpired || len(decision.DeleteJobs) != 1 || decision.DeleteJobs[0].Name != s.archiveJob().Name {
		t.Errorf("%+v", decision)
	}
	s.wantArchive("1: Failed, DeadlineExceeded: not archived within 20m0s")
}

func TestWhatKeepsTheArchiveFromStartingIsReported(t *testing.T) {
	s := startArchivedRun(t, sequence("build"))
	s.succeedStep("build")
	job := testbuilder.Job(s.archiveJob()).PodPending(s.now).Obj()
	job.Status.Active = 0
	s.warnings[job.UID] = `error looking up service account ns/logs: serviceaccount "logs" not found`
	s.reconcileAfter(10 * time.Second)
	s.wantArchive("1: Archiving, PodNotCreated: Job " + job.Name + ` cannot create its Pod: error looking up service account ns/logs: serviceaccount "logs" not found`)
	reported := s.sj.Status.Archive.DeepCopy()
	pod := testbuilder.Pod(archiveContainer).Created(s.now).Running().Obj()
	pod.OwnerReferences = []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}}
	s.unfinishedPods = []*corev1.Pod{&pod}
	s.reconcile()
	s.wantArchive("1: Archiving")
	s.unfinishedPods, s.sj.Status.Archive = nil, reported
	testbuilder.Job(job).Failed(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", s.now)
	s.reconcile()
	if a := s.sj.Status.Archive; !strings.Contains(a.Error, `"logs" not found`) {
		t.Errorf("%+v", a)
	}
}

func TestRefusedArchiveIsTriedAgainAsLongAsThatCanHelp(t *testing.T) {
	for _, row := range []struct {
		class decision.Class
		want  string
	}{
		{decision.QuotaExceeded, "1: Archiving, QuotaExceeded: no"},
		{decision.AlreadyExists, "1: Archiving, NameTaken: no"},
		{decision.PolicyDenied, "1: Failed, JobRejected: no"},
	} {
		s := startArchivedRun(t, sequence("build"))
		s.archiveRefusal = &decision.Refusal{Class: row.class, Message: "no"}
		s.succeedStep("build")
		s.wantArchive(row.want)
		s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
		s.archiveRefusal = nil
		s.reconcileAfter(time.Minute)
		if isCreated := len(s.createdArchives) == 1; isCreated != canRetry(&decision.Refusal{Class: row.class}) {
			t.Errorf("%s: created %v", row.class, isCreated)
		}
	}
}

func TestArchiveJobIsNoStep(t *testing.T) {
	s := startArchivedRun(t, sequence("archive"))
	s.succeedStep("archive")
	job := s.archiveJob()
	delete(job.Labels, v1alpha1.LabelArchive) // as another client can
	job.Labels[v1alpha1.LabelStep] = "archive"
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	})
	if decision := s.reconcile(); len(decision.DeleteJobs) > 0 {
		t.Errorf("%v are deleted", decision.DeleteJobs)
	}
	s.wantCreated("archive", "archive") // without waiting for it
	if decision := s.deleteSequentialJob(); len(decision.DeleteJobs) != 1 || decision.DeleteJobs[0].Name == job.Name {
		t.Errorf("%v are deleted", decision.DeleteJobs)
	}
}

func TestArchiveGetsTheJobsOfTheRunByStepAttemptAndUID(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retry(1, 1, 1)).Step("test"))
	s.pass(fail("build"), wait(time.Second), succeed("build", "test"))
	args := strings.Join(s.archiveJob().Spec.Template.Spec.Containers[0].Args, " ")
	want := fmt.Sprintf("archive-logs --namespace=ns --sequence-uid=%[1]s --path=ns/a/%[1]s/run-1 --claim=/logs --job=build/1/job-1 --job=build/2/job-2 --job=test/1/job-3", s.sj.UID)
	if args != want {
		t.Errorf("arguments\n%s, want\n%s", args, want)
	}
}

func TestArchiveInABucketGetsItsCredentialsFromTheSecretOnly(t *testing.T) {
	s := startArchivedRun(t, sequence("build"))
	s.sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{S3: &v1alpha1.ArchiveS3{
		Endpoint: "https://s3.example", Bucket: "logs", Prefix: "team/", SecretRef: v1alpha1.LocalReference{Name: "keys"},
	}}}
	s.succeedStep("build")
	pod := s.archiveJob().Spec.Template.Spec
	args := strings.Join(pod.Containers[0].Args, " ")
	if !strings.Contains(args, " --endpoint=https://s3.example --bucket=logs --prefix=team/ --region=us-east-1 --credentials=/etc/archive ") {
		t.Errorf("arguments %s", args)
	}
	if pod.Volumes[0].Secret.SecretName != "keys" || !pod.Containers[0].VolumeMounts[0].ReadOnly {
		t.Errorf("Pod %+v", pod)
	}
	if got, want := s.sj.Status.Archive.Location, "s3://logs/team/ns/a/"+string(s.sj.UID)+"/run-1"; got != want {
		t.Errorf("location %s, want %s", got, want)
	}
}

func TestPodOfTheArchiveIsRestrictedAndBounded(t *testing.T) {
	s := startArchivedRun(t, sequence("build"))
	s.succeedStep("build")
	job := s.archiveJob()
	checks, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	require.NoError(t, err)
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	result := podsecuritypolicy.AggregateCheckResults(checks.EvaluatePod(restricted, &job.Spec.Template.ObjectMeta, &job.Spec.Template.Spec))
	if !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		resources := job.Spec.Template.Spec.Containers[0].Resources
		if resources.Requests.Name(name, "").IsZero() || resources.Limits.Name(name, "").IsZero() {
			t.Errorf("no amount of %s", name)
		}
	}
	if *job.Spec.ActiveDeadlineSeconds >= int64(archiveDeadline.Seconds()) || *job.Spec.BackoffLimit > 5 || job.Spec.Template.Spec.ServiceAccountName != "logs" {
		t.Errorf("%+v", job.Spec)
	}
	if job.Labels[v1alpha1.LabelStep] != "" || job.Labels[v1alpha1.LabelArchive] != "true" || job.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByValue {
		t.Errorf("labels %v", job.Labels)
	}
}

func TestArgumentsOfAnArchiveAreBounded(t *testing.T) {
	sj := sequence("build").Obj()
	sj.Spec.Archive = archiveInAClaim()
	var jobs []string
	for i := range 3 * maxArchivedJobs {
		jobs = append(jobs, fmt.Sprintf("%s/%d/%s", strings.Repeat("s", 30), i, strings.Repeat("u", 36)))
	}
	args := newArchivePod(sj, 1, "image", jobs).Containers[0].Args
	if size := len(strings.Join(args, " ")); size > 100_000 {
		t.Errorf("%d bytes", size)
	}
	if !slices.Contains(args, "--omitted-jobs=2000") || slices.Contains(args, "--job="+jobs[1999]) {
		t.Error("the newest Jobs are not archived")
	}
}

// With ttlSecondsAfterFinished 0, the Job may be deleted before its end is observed. The controller then observes its last version.
func TestEndedArchiveThatWasDeletedIsNotCreatedAgain(t *testing.T) {
	s := startArchivedRun(t, sequence("build"))
	s.succeedStep("build")
	job := testbuilder.Job(s.archiveJob()).Complete(s.now).Obj()
	if !NeedsEvidence(s.sj, job) {
		t.Fatal("the last version of the Job is not observed")
	}
	s.pods[job.UID] = nil
	s.reconcile()
	if archive := s.sj.Status.Archive; archive.CompletionTime == nil || archive.Error != "" || len(s.createdArchives) != 1 {
		t.Errorf("%d archives were created: %+v", len(s.createdArchives), archive)
	}
	if NeedsEvidence(s.sj, job) {
		t.Error("the Job is still observed after its outcome was recorded")
	}
}
