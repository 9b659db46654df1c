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
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func archiveInAClaim() *v1alpha1.SequenceArchive {
	return &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
}

func startArchivedRun(t *testing.T, sj *testbuilder.SequentialJobBuilder) *testEnv {
	return newTestEnv(t, sj.Obj()).pass(archives, wait(0))
}

func (s *testEnv) archiveJob() *batchv1.Job {
	require.True(s.t, len(s.createdArchives) != 0, "no logs are archived")
	return s.jobNamed(s.createdArchives[len(s.createdArchives)-1].Name)
}

func (s *testEnv) endArchive(code int32, result string) Decision {
	job := testbuilder.Job(s.archiveJob())
	if code == 0 {
		job.Complete(s.now)
	} else {
		job.Failed(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", s.now)
	}
	s.pods[job.Obj().UID] = []corev1.Pod{testbuilder.Pod(archiveContainer).Exited(code, result).Obj()}
	return s.reconcile()
}

func archives(s *testEnv) { s.sj.Spec.Archive = archiveInAClaim() }

// archived compares the archive in the status: "run: state, reason: message".
func archived(want string) func(*testEnv) {
	return func(s *testEnv) {
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
		assert.Equal(s.t, "archive", want, got)
	}
}

func endArchive(code int32, result string) func(*testEnv) {
	return func(s *testEnv) {
		s.events = nil
		s.endArchive(code, result)
	}
}

func archiveJobs(want int) func(*testEnv) {
	return func(s *testEnv) {
		assert.Equal(s.t, "number of Jobs that archive logs", want, len(s.createdArchives))
	}
}

// needsEvidence checks whether the Pods of the Job that archives logs are observed.
func needsEvidence(want bool) func(*testEnv) {
	return func(s *testEnv) {
		assert.Equal(s.t, "the Job is observed", want, NeedsEvidence(s.sj, s.archiveJob()))
	}
}

// isExpired checks whether the SequentialJob is deleted.
func isExpired(want bool) func(*testEnv) {
	return func(s *testEnv) {
		assert.Equal(s.t, "the SequentialJob is deleted", want, s.decide(nil).DeleteExpired)
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
				require.True(s.t, status.CompletionTime.Equal(&finished) && status.Archive.Location == "ns/a/"+string(s.sj.UID)+"/run-1", "status %+v", status)
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
		"a Job that was deleted after its end is observed until its outcome is recorded": {sequence("build"), story{
			archives, succeed("build"), func(s *testEnv) {
				testbuilder.Job(s.archiveJob()).Complete(s.now)
				s.pods[s.archiveJob().UID] = nil
			},
			needsEvidence(true), wait(0), needsEvidence(false), archived("1: Archived"), archiveJobs(1),
		}},
		"it expires at the latest after the deadline": {expiring(), story{
			archives, succeed("build"), wait(archiveDeadline - time.Second), isExpired(false), func(s *testEnv) {
				require.True(s.t, s.decide(nil).RequeueAfter <= time.Second, "the next decision is too late")
				s.now = s.now.Add(time.Second)
				d := s.decideAndRecord(nil)
				require.True(s.t, d.DeleteExpired && len(d.DeleteJobs) == 1 && d.DeleteJobs[0].Name == s.archiveJob().Name, "%+v", d)
			},
			archived("1: Failed, DeadlineExceeded: not archived within 20m0s"),
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

func TestWhatKeepsTheArchiveFromStartingIsReported(t *testing.T) {
	const missing = `error looking up service account ns/logs: serviceaccount "logs" not found`
	s := startArchivedRun(t, sequence("build")).pass(succeed("build"))
	job := testbuilder.Job(s.archiveJob()).PodPending(s.now).Obj()
	job.Status.Active, s.warnings[job.UID] = 0, missing
	s.pass(wait(10*time.Second), archived("1: Archiving, PodNotCreated: Job "+job.Name+" cannot create its Pod: "+missing))
	reported := s.sj.Status.Archive.DeepCopy()
	pod := testbuilder.Pod(archiveContainer).Created(s.now).Running().Obj()
	pod.OwnerReferences = []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}}
	s.unfinishedPods = []*corev1.Pod{&pod}
	s.pass(wait(0), archived("1: Archiving"))
	s.unfinishedPods, s.sj.Status.Archive = nil, reported
	testbuilder.Job(job).Failed(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", s.now)
	s.reconcile()
	require.Contains(t, s.sj.Status.Archive.Error, missing)
}

func TestRefusedArchiveIsTriedAgainAsLongAsThatCanHelp(t *testing.T) {
	for class, row := range map[decision.Class]struct {
		want    string
		created int
	}{
		decision.QuotaExceeded: {"1: Archiving, QuotaExceeded: no", 1},
		decision.AlreadyExists: {"1: Archiving, NameTaken: no", 1},
		decision.PolicyDenied:  {"1: Failed, JobRejected: no", 0},
	} {
		s := startArchivedRun(t, sequence("build"))
		s.archiveRefusal = &decision.Refusal{Class: class, Message: "no"}
		s.pass(succeed("build"), archived(row.want), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted))
		s.archiveRefusal = nil
		s.pass(wait(time.Minute), archiveJobs(row.created))
	}
}

func TestArchiveJobIsNoStep(t *testing.T) {
	s := startArchivedRun(t, sequence("archive")).pass(succeed("archive"))
	job := s.archiveJob()
	delete(job.Labels, v1alpha1.LabelArchive) // as another client can
	job.Labels[v1alpha1.LabelStep] = "archive"
	s.changeSpec(requestRerun(v1alpha1.RerunFromStart))
	require.True(t, len(s.reconcile().DeleteJobs) == 0, "Jobs are deleted")
	s.pass(created("archive", "archive")) // without waiting for it
	decision := s.deleteSequentialJob()
	require.True(t, len(decision.DeleteJobs) == 1 && decision.DeleteJobs[0].Name != job.Name, "%v are deleted", decision.DeleteJobs)
}

func TestArchiveGetsTheJobsOfTheRunByStepAttemptAndUID(t *testing.T) {
	s := startArchivedRun(t, sequence().Step("build", retry(1, 1, 1)).Step("test"))
	s.pass(fail("build"), wait(time.Second), succeed("build", "test"))
	const jobs = " --job=build/1/job-1 --job=build/2/job-2 --job=test/1/job-3"
	want := fmt.Sprintf("archive-logs --namespace=ns --sequence-uid=%[1]s --path=ns/a/%[1]s/run-1 --claim=/logs", s.sj.UID) + jobs
	assert.Equal(t, "arguments", want, strings.Join(s.archiveJob().Spec.Template.Spec.Containers[0].Args, " "))
}

func TestArchiveInABucketGetsItsCredentialsFromTheSecretOnly(t *testing.T) {
	s := startArchivedRun(t, sequence("build"))
	s.sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{S3: &v1alpha1.ArchiveS3{
		Endpoint: "https://s3.example", Bucket: "logs", Prefix: "team/", SecretRef: v1alpha1.LocalReference{Name: "keys"},
	}}}
	pod := s.pass(succeed("build")).archiveJob().Spec.Template.Spec
	const args = " --endpoint=https://s3.example --bucket=logs --prefix=team/ --region=us-east-1 --credentials=/etc/archive "
	require.Contains(t, strings.Join(pod.Containers[0].Args, " "), args)
	require.True(t, pod.Volumes[0].Secret.SecretName == "keys" && pod.Containers[0].VolumeMounts[0].ReadOnly, "Pod %+v", pod)
	assert.Equal(t, "location", "s3://logs/team/ns/a/"+string(s.sj.UID)+"/run-1", s.sj.Status.Archive.Location)
}

func TestPodOfTheArchiveIsRestrictedAndBounded(t *testing.T) {
	job := startArchivedRun(t, sequence("build")).pass(succeed("build")).archiveJob()
	checks, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	require.NoError(t, err)
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	result := podsecuritypolicy.AggregateCheckResults(checks.EvaluatePod(restricted, &job.Spec.Template.ObjectMeta, &job.Spec.Template.Spec))
	assert.Equal(t, "what PodSecurity forbids", "", result.ForbiddenDetail())
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		resources := job.Spec.Template.Spec.Containers[0].Resources
		require.True(t, !resources.Requests.Name(name, "").IsZero() && !resources.Limits.Name(name, "").IsZero(), "no amount of %s", name)
	}
	require.True(t, *job.Spec.ActiveDeadlineSeconds < int64(archiveDeadline.Seconds()) && *job.Spec.BackoffLimit <= 5, "%+v", job.Spec)
	assert.Equal(t, "ServiceAccount", "logs", job.Spec.Template.Spec.ServiceAccountName)
	labels := []string{job.Labels[v1alpha1.LabelStep], job.Labels[v1alpha1.LabelArchive], job.Labels[v1alpha1.LabelManagedBy]}
	assert.Equal(t, "labels", []string{"", "true", v1alpha1.ManagedByValue}, labels)
}

func TestArgumentsOfAnArchiveAreBounded(t *testing.T) {
	sj := sequence("build").Obj()
	sj.Spec.Archive = archiveInAClaim()
	var jobs []string
	for i := range 3 * maxArchivedJobs {
		jobs = append(jobs, fmt.Sprintf("%s/%d/%s", strings.Repeat("s", 30), i, strings.Repeat("u", 36)))
	}
	args := newArchivePod(sj, 1, "image", jobs).Containers[0].Args
	size := len(strings.Join(args, " "))
	require.True(t, size <= 100_000, "%d bytes", size)
	require.True(t, slices.Contains(args, "--omitted-jobs=2000") && !slices.Contains(args, "--job="+jobs[1999]), "the newest Jobs are not archived")
}
