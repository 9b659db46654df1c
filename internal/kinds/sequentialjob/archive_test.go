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
	"k8s.io/apimachinery/pkg/util/validation"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// startArchivedRun starts a run whose logs are archived in a claim.
func startArchivedRun(t *testing.T, sj *testbuilder.SequentialJobBuilder) *testEnv {
	t.Helper()
	object := sj.Obj()
	object.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
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

func TestLogsAreArchivedWhenTheRunHasEnded(t *testing.T) {
	for title, end := range map[string]func(*testEnv) Decision{
		"completed": func(s *testEnv) Decision { s.succeedStep("build"); return s.succeedStep("test") },
		"failed":    func(s *testEnv) Decision { return s.failStep("build") },
	} {
		t.Run(title, func(t *testing.T) {
			s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
			s.wantArchive("")
			if len(s.createdArchives) > 0 {
				t.Error("the logs are archived before the run has ended")
			}
			end(s)
			s.wantArchive("1: Archiving")
			finished := s.sj.Status.CompletionTime
			s.reconcileAfter(time.Second)
			s.endArchive(0, "2 logs, 10 bytes\n")
			s.wantArchive("1: Archived: 2 logs, 10 bytes")
			if s.sj.Status.CompletionTime != finished && !s.sj.Status.CompletionTime.Equal(finished) || s.sj.Status.Archive.Location != "ns/a/"+string(s.sj.UID)+"/run-1" {
				t.Errorf("status %+v", s.sj.Status)
			}
			if len(s.createdArchives) != 1 {
				t.Errorf("%d Jobs archive logs", len(s.createdArchives))
			}
		})
	}
}

func TestArchiveIsReportedByAnEvent(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	s.events = nil
	s.endArchive(0, "1 logs, 10 bytes")
	s.wantEvents(v1alpha1.EventLogsArchived)

	s = startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	s.events = nil
	s.endArchive(1, "listing Pods: 403")
	s.wantEvents(v1alpha1.EventArchiveFailed)
}

func TestFailedArchiveDoesNotFailTheRun(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	s.endArchive(1, "listing Pods: the API server returned 403 Forbidden")
	s.wantArchive("1: Failed, JobFailed: container archive exited with code 1: listing Pods: the API server returned 403 Forbidden")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
	s.wantCondition(v1alpha1.ConditionAvailable, "True Completed: 1/1 steps succeeded")
}

func TestExpiredSequenceIsDeletedAfterItsLogsAreArchived(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTLAfterFinished(0))
	if s.succeedStep("build").DeleteExpired {
		t.Error("deleted before the logs are archived")
	}
	if s.reconcileAfter(time.Minute).DeleteExpired {
		t.Error("deleted before the logs are archived")
	}
	if !s.endArchive(0, "").DeleteExpired {
		t.Error("not deleted after the logs were archived")
	}
}

func TestExpiredSequenceIsDeletedAfterTheDeadlineOfItsArchive(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTLAfterFinished(0))
	s.succeedStep("build")
	decision := s.decide(nil)
	if decision.RequeueAfter == 0 || decision.RequeueAfter > archiveDeadline {
		t.Errorf("decides again after %s", decision.RequeueAfter)
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
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
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
		s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
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

func TestRunsAreArchivedOneAfterAnotherAndARerunDoesNotWait(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	first := s.archiveJob()
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	})
	s.reconcile()
	s.wantCreated("build", "build")
	s.succeedStep("build")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
	s.wantArchive("1: Archiving")
	if len(s.createdArchives) != 1 {
		t.Error("two runs are archived at a time")
	}
	if decision := s.endArchive(0, ""); len(decision.DeleteJobs) != 1 || decision.DeleteJobs[0].Name != first.Name {
		t.Errorf("%v are deleted, not the Job that has archived the first run", decision.DeleteJobs)
	}
	s.wantArchive("2: Archiving")
	if second := s.archiveJob(); second.Name == first.Name {
		t.Error("both runs have the same Job")
	}
	s.endArchive(0, "")
	s.wantArchive("2: Archived")
}

func TestArchiveJobThatExpiredAtItsEndIsNotCreatedAgain(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	})
	s.reconcile()
	s.succeedStep("build")
	testbuilder.Job(s.archiveJob()).Complete(s.now)
	// The Job of the second run has expired too, so that the operator lists all Jobs.
	s.expired, s.jobs = []*batchv1.Job{s.archiveJob()}, s.jobs[:1]
	s.reconcileAfter(time.Minute)
	s.wantArchive("2: Failed, JobLost: the Jobs of the run were deleted before their logs were archived")
	if len(s.createdArchives) != 1 {
		t.Errorf("%d archives are created", len(s.createdArchives))
	}
}

func TestArchiveJobIsNoStep(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("archive"))
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

func TestStatusOfAnArchiveThatWasEditedIsNoProblem(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	s.sj.Status.Archive = &v1alpha1.SequenceArchiveStatus{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}}
	s.reconcile()
	s.wantArchive("1: Failed, DeadlineExceeded: not archived within 20m0s")
	s.sj.Status.Archive = nil
	s.removeDeletedJobs()
	s.wantArchive("1: Archiving")
	s.endArchive(0, "")
	s.wantArchive("1: Archived")
}

func TestLostArchiveJobIsCreatedAgain(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	lost := s.archiveJob()
	s.jobs = slices.DeleteFunc(s.jobs, func(j *batchv1.Job) bool { return j == lost })
	s.reconcile()
	if len(s.createdArchives) != 2 || s.archiveJob().Name != lost.Name {
		t.Errorf("%d Jobs", len(s.createdArchives))
	}
}

func TestJobThatTheCacheDoesNotShowIsArchived(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTLAfterFinished(0))
	s.uncached[s.newestJob("build").Name] = true
	if s.succeedStep("build").DeleteExpired {
		t.Error("deleted before the logs are archived")
	}
	s.wantArchive("1: Archiving")
}

func TestRunWhoseJobsWereDeletedCannotBeArchived(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build").TTLAfterFinished(0))
	s.sj.Spec.Archive = nil
	s.succeedStep("build")
	s.jobs = nil
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
	})
	decision := s.reconcile()
	s.wantArchive("1: Failed, JobLost: the Jobs of the run were deleted before their logs were archived")
	if !decision.DeleteExpired {
		t.Error("not deleted")
	}
}

func TestArchiveOfAnOperatorThatDoesNotKnowItsImageFails(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.archiveImage = ""
	s.succeedStep("build")
	s.wantArchive("1: Failed, ImageUnknown: the operator does not know its own image: set its flag --operator-pod or --worker-image")
}

func TestArchiveGetsTheJobsOfTheRunByStepAttemptAndUID(t *testing.T) {
	retried := testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry = &v1alpha1.StepRetry{Retry: v1alpha1.Retry{Limit: new(int32(1)), Backoff: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Second}}}}
	})
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build", retried).Step("test"))
	s.failStep("build")
	s.reconcileAfter(time.Second)
	s.succeedStep("build")
	s.succeedStep("test")
	args := strings.Join(s.archiveJob().Spec.Template.Spec.Containers[0].Args, " ")
	want := fmt.Sprintf("archive-logs --namespace=ns --sequence-uid=%[1]s --path=ns/a/%[1]s/run-1 --claim=/logs --job=build/1/job-1 --job=build/2/job-2 --job=test/1/job-3", s.sj.UID)
	if args != want {
		t.Errorf("arguments\n%s, want\n%s", args, want)
	}
}

func TestArchiveInABucketGetsItsCredentialsFromTheSecretOnly(t *testing.T) {
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
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
	s := startArchivedRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.succeedStep("build")
	job := s.archiveJob()
	checks, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
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

func TestNameOfTheArchiveJobIsADNSLabel(t *testing.T) {
	sj := testbuilder.SequentialJob(strings.Repeat("a.b-", 62), "ns").Obj()
	names := map[string]bool{}
	for _, run := range []int32{1, 2, 1 << 30} {
		name := archiveJobName(sj, run)
		if names[name] = true; len(validation.IsDNS1123Label(name)) > 0 || len(name) > maxNameLength {
			t.Errorf("name %q", name)
		}
	}
	if len(names) != 3 {
		t.Errorf("names %v", names)
	}
}

func TestArgumentsOfAnArchiveAreBounded(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Obj()
	sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
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
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
	s.succeedStep("build")
	if len(s.createdArchives) != 1 {
		t.Fatalf("%d archives were created", len(s.createdArchives))
	}
	job := testbuilder.Job(s.jobNamed(s.createdArchives[0].Name)).Complete(s.now).Obj()
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
