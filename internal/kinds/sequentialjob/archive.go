package sequentialjob

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// archiveDeadline is the maximum time from the decision to archive logs to the outcome.
	archiveDeadline = 20 * time.Minute
	// archiveActiveSeconds is the deadline of the Job, which may start later because of a quota.
	archiveActiveSeconds = 15 * 60
)

func isArchiving(status *v1alpha1.SequentialJobStatus) bool {
	return status.Archive != nil && status.Archive.CompletionTime == nil
}

// separateArchiveJobs moves the Jobs that archive logs, and a refusal of such a Job, out of the observation, so that no
// other decision takes them for Jobs of steps.
func (e *evaluation) separateArchiveJobs() {
	steps := make([]*batchv1.Job, 0, len(e.Jobs))
	for _, job := range e.Jobs {
		if isArchiveJob(e.SequentialJob, job) {
			e.archiveJobs = append(e.archiveJobs, job)
			continue
		}
		steps = append(steps, job)
	}
	e.Jobs = steps
	if archive := e.status.Archive; archive != nil && e.Refusal != nil && e.Refusal.Name == archiveJobName(e.SequentialJob, archive.Run) {
		e.archiveRefusal, e.Refusal = e.Refusal, nil
	}
}

// isArchiveJob reports whether an owned Job archives logs, by its name: other clients can change its labels.
func isArchiveJob(sj *v1alpha1.SequentialJob, job *batchv1.Job) bool {
	run, known := runOf(job)
	return known && strings.Contains(job.Name, "-"+archivePart+"-") && job.Name == archiveJobName(sj, run)
}

func runOf(job *batchv1.Job) (run int32, known bool) {
	parsed, err := strconv.ParseInt(job.Annotations[v1alpha1.AnnotationRun], 10, 32)
	return int32(parsed), err == nil
}

// advanceArchive decides about the logs of ended runs, one run after another. It may set a question instead.
func (e *evaluation) advanceArchive() {
	if e.decision.Question != nil {
		return
	}
	if isArchiving(&e.status) {
		e.observeArchive(e.status.Archive)
	}
	for e.decision.Question == nil && !isArchiving(&e.status) {
		run := e.nextArchivedRun()
		if run == 0 {
			break
		}
		e.status.Archive = &v1alpha1.SequenceArchiveStatus{
			JobAttempt: v1alpha1.JobAttempt{
				AttemptNumber: v1alpha1.AttemptNumber{Run: run},
				JobName:       archiveJobName(e.SequentialJob, run),
				Times:         v1alpha1.Times{StartTime: e.now.DeepCopy()},
			},
		}
		e.createArchiveJob(e.status.Archive)
	}
	for _, job := range e.archiveJobs { // otherwise they would accumulate
		if IsTerminal(job) && e.status.Archive != nil && job.Name != archiveJobName(e.SequentialJob, e.status.Archive.Run) {
			e.deleteJob(job)
		}
	}
}

// nextArchivedRun returns the number of the first run that has ended, is not archived and has Jobs; 0 for none. Runs
// that ended with the loss of the workspace count too.
func (e *evaluation) nextArchivedRun() int32 {
	if e.spec.Archive == nil {
		return 0
	}
	archived, last := int32(0), e.status.Run
	if e.status.Archive != nil {
		archived = e.status.Archive.Run
	}
	if !IsFinished(&e.status) {
		last--
	}
	next := int32(0)
	for _, job := range e.Jobs {
		if run, known := runOf(job); known && run > archived && run <= last && (next == 0 || run < next) {
			next = run
		}
	}
	if next > 0 || last <= archived || last < e.status.Run || !hasCreatedJob(&e.status) {
		return next
	}
	// The steps had Jobs, which the cache does not show now.
	if !e.Answers.HasAllJobs {
		e.decision.Question = &Question{AllJobs: true}
		return 0
	}
	return last
}

func hasCreatedJob(status *v1alpha1.SequentialJobStatus) bool {
	return slices.ContainsFunc(status.Steps, func(step v1alpha1.StepStatus) bool { return step.Run == status.Run && step.JobUID != "" })
}

// createArchiveJob decides to create the Job, or ends the archive if no logs can be archived.
func (e *evaluation) createArchiveJob(archive *v1alpha1.SequenceArchiveStatus) {
	jobs := e.archivedJobs(archive.Run)
	switch {
	case len(jobs) == 0:
		e.endArchive(archive, v1alpha1.ReasonJobLost, "the Jobs of the run were deleted before their logs were archived")
	case e.ArchiveImage == "":
		e.endArchive(archive, v1alpha1.ReasonArchiveImageUnknown, "the operator does not know its own image: set its flag --operator-pod or --worker-image")
	default:
		archive.Location = archivePath(e.SequentialJob, archive.Run)
		if s3 := e.spec.Archive.S3; s3 != nil {
			archive.Location = "s3://" + path.Join(s3.Bucket, s3.Prefix, archive.Location)
		}
		e.decision.CreateArchive = newArchiveJob(e.SequentialJob, archive.Run, e.ArchiveImage, jobs)
		e.timer.RequeueWithin(createdRecheck)
	}
}

// endArchive records the outcome of an archive. An empty reason means success, and the message is the report of the Job.
func (e *evaluation) endArchive(archive *v1alpha1.SequenceArchiveStatus, reason, message string) {
	message = decision.TruncateMessage(message, maxMessageBytes)
	archive.CompletionTime, archive.Reason, archive.Message = e.now.DeepCopy(), reason, ""
	if reason != "" {
		archive.Error = cmp.Or(message, reason)
		return
	}
	archive.Message, archive.Truncated = message, strings.Contains(message, ", truncated: ")
}

// observeArchive records the state of the Job that archives logs, or decides to create it, perhaps again: it writes the
// same files.
func (e *evaluation) observeArchive(archive *v1alpha1.SequenceArchiveStatus) {
	name := archiveJobName(e.SequentialJob, archive.Run)
	isOverdue := e.timer.HasReached(ptr.Deref(archive.StartTime, metav1.Time{}).Add(archiveDeadline))
	job, presence := e.findArchiveJob(name)
	switch {
	case presence == jobUnknown:
		e.decision.Question = &Question{JobNamed: name}
	case job != nil && IsTerminal(job):
		e.evaluateArchiveJob(archive, job)
	case isOverdue:
		if job != nil {
			e.deleteJob(job)
		}
		e.endArchive(archive, v1alpha1.ReasonDeadlineExceeded, decision.FormatReason(fmt.Sprintf("not archived within %s", archiveDeadline), archive.Message))
	case job != nil:
		e.reportArchiveProblem(archive, job)
	case e.spec.Archive == nil:
		e.endArchive(archive, v1alpha1.ReasonJobLost, "Job "+name+" does not exist, and spec.archive was removed")
	case e.archiveRefusal != nil && !canRetry(e.archiveRefusal):
		e.endArchive(archive, v1alpha1.ReasonJobRejected, e.archiveRefusal.Message)
	default:
		e.retryArchiveJob(archive)
	}
}

func (e *evaluation) findArchiveJob(name string) (*batchv1.Job, jobPresence) {
	if job, read := e.Answers.JobsByName[name]; read {
		if job == nil {
			return nil, jobAbsent
		}
		return job, jobFound
	}
	for _, job := range e.archiveJobs {
		if job.Name == name {
			return job, jobFound
		}
	}
	return nil, jobUnknown
}

// retryArchiveJob decides to create the Job, now or some time after it was refused.
func (e *evaluation) retryArchiveJob(archive *v1alpha1.SequenceArchiveStatus) {
	refusal := e.archiveRefusal
	if refusal == nil {
		e.createArchiveJob(archive)
		return
	}
	archive.Reason = v1alpha1.ReasonQuotaExceeded
	if refusal.Class == decision.AlreadyExists {
		archive.Reason = v1alpha1.ReasonNameTaken
	}
	archive.Message = decision.TruncateMessage(refusal.Message, maxMessageBytes)
	e.timer.RequeueWithin(min(max(e.Now.Sub(archive.StartTime.Time), minBlockedRetry), maxBlockedRetry))
}

// reportArchiveProblem records the problem that keeps the Job's Pod from running. It may set a question instead.
func (e *evaluation) reportArchiveProblem(archive *v1alpha1.SequenceArchiveStatus, job *batchv1.Job) {
	pods := podsOf(e.Pods, job.UID)
	if !job.DeletionTimestamp.IsZero() {
		return
	}
	if runningSince(withoutDeleted(pods)) != nil {
		archive.Reason, archive.Message = "", ""
		return
	}
	reported := &v1alpha1.StepStatus{JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: archive.Reason, Message: archive.Message}}}
	problem := e.findStartProblem(reported, job, pods)
	if problem == nil {
		return
	}
	if message := decision.TruncateMessage(problem.Message, maxMessageBytes); archive.Reason != problem.Reason || !isRepeated(archive.Message, message) {
		archive.Reason, archive.Message = problem.Reason, message
	}
}

// evaluateArchiveJob records the outcome of the Job. It may set a question instead.
func (e *evaluation) evaluateArchiveJob(archive *v1alpha1.SequenceArchiveStatus, job *batchv1.Job) {
	pods, known := e.Answers.PodsByJob[job.UID]
	if !known {
		e.decision.Question = &Question{PodsOf: job}
		return
	}
	condition := decision.FindEndCondition(job)
	if condition.Type == batchv1.JobComplete {
		e.endArchive(archive, "", archiveSummary(pods))
		return
	}
	message := condition.Message
	if failure := failureMessage(pods); failure != "" {
		message = failure
	} else if archive.Message != "" {
		message = decision.FormatReason(message, archive.Message) // the message is why its Pod did not start
	}
	e.endArchive(archive, v1alpha1.ReasonArchiveJobFailed, message)
}

// archiveSummary returns the report of the Pod; empty if unknown.
func archiveSummary(pods []corev1.Pod) string {
	pod := newestPod(pods, corev1.PodSucceeded)
	if pod == nil {
		return ""
	}
	if terminated := terminatedState(pod, archiveContainer); terminated != nil {
		return strings.TrimSpace(terminated.Message)
	}
	return ""
}

// keepsForArchive reports whether the logs of an ended Job are not archived yet.
func (e *evaluation) keepsForArchive(job *batchv1.Job) bool {
	run, known := runOf(job)
	if e.spec.Archive == nil || !known {
		return false
	}
	archive := e.status.Archive
	return archive == nil || run > archive.Run || run == archive.Run && archive.CompletionTime == nil
}
