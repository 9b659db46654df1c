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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

func runOf(job *batchv1.Job) (run int32, known bool) {
	parsed, err := strconv.ParseInt(job.Annotations[v1alpha1.AnnotationRun], 10, 32)
	return int32(parsed), err == nil
}

// archive is what happens with the logs of ended runs.
type archive struct {
	// record of the newest archive; nil for none.
	record *v1alpha1.SequenceArchiveStatus
	// create is the Job to create; nil for none.
	create *batchv1.Job
	// deletions are Jobs to delete.
	deletions []*batchv1.Job
	notes
}

// archiveLogs decides about the logs of ended runs, one run after another.
func archiveLogs(f *facts, status *v1alpha1.SequentialJobStatus) archive {
	a := archive{record: status.Archive.DeepCopy(), notes: f.newNotes()}
	if isArchiving(status) {
		a = continueArchive(f, status)
	}
	for a.question == nil && (a.record == nil || a.record.CompletionTime != nil) {
		run, question := nextArchivedRun(f, status, a.record)
		if a.question = question; run == 0 {
			break
		}
		a.record = &v1alpha1.SequenceArchiveStatus{JobAttempt: v1alpha1.JobAttempt{
			AttemptNumber: v1alpha1.AttemptNumber{Run: run},
			JobName:       archiveJobName(f.SequentialJob, run),
			Times:         v1alpha1.Times{StartTime: f.now.DeepCopy()},
		}}
		a = a.withJob(f, status)
	}
	for _, job := range f.archiveJobs { // otherwise they would accumulate
		if IsTerminal(job) && a.record != nil && job.Name != archiveJobName(f.SequentialJob, a.record.Run) {
			a.deletions = append(a.deletions, job)
		}
	}
	return a
}

// nextArchivedRun returns the number of the first run that has ended, is not archived and has Jobs; 0 for none. Runs
// that ended with the loss of the workspace count too.
func nextArchivedRun(f *facts, status *v1alpha1.SequentialJobStatus, record *v1alpha1.SequenceArchiveStatus) (int32, *Question) {
	if f.spec.Archive == nil {
		return 0, nil
	}
	archived, last := int32(0), status.Run
	if record != nil {
		archived = record.Run
	}
	if !IsFinished(status) {
		last--
	}
	hasCreatedJob := func(step v1alpha1.StepStatus) bool { return step.Run == status.Run && step.JobUID != "" }
	next := int32(0)
	for _, job := range f.Jobs {
		if run, known := runOf(job); known && run > archived && run <= last && (next == 0 || run < next) {
			next = run
		}
	}
	switch {
	case next > 0 || last <= archived || last < status.Run || !slices.ContainsFunc(status.Steps, hasCreatedJob):
		return next, nil
	case !f.Answers.HasAllJobs: // the steps had Jobs, which the cache does not show now
		return 0, &Question{AllJobs: true}
	default:
		return last, nil
	}
}

// withJob returns the archive with the Job to create, or with its end if no logs can be archived.
func (a archive) withJob(f *facts, status *v1alpha1.SequentialJobStatus) archive {
	jobs := archivedJobs(f, status, a.record.Run)
	switch {
	case len(jobs) == 0:
		return a.withEnd(f, v1alpha1.ReasonJobLost, "the Jobs of the run were deleted before their logs were archived")
	case f.ArchiveImage == "":
		return a.withEnd(f, v1alpha1.ReasonArchiveImageUnknown, "the operator does not know its own image: set its flag --operator-pod or --worker-image")
	}
	a.record.Location = archivePath(f.SequentialJob, a.record.Run)
	if s3 := f.spec.Archive.S3; s3 != nil {
		a.record.Location = "s3://" + path.Join(s3.Bucket, s3.Prefix, a.record.Location)
	}
	a.create = newArchiveJob(f.SequentialJob, a.record.Run, f.ArchiveImage, jobs)
	a.timer.RequeueWithin(createdRecheck)
	return a
}

// withEnd returns the archive with its outcome. An empty reason means success, and the message is the report of the Job.
func (a archive) withEnd(f *facts, reason, message string) archive {
	message = decision.TruncateMessage(message, maxMessageBytes)
	a.record.CompletionTime, a.record.Reason, a.record.Message = f.now.DeepCopy(), reason, ""
	if reason != "" {
		a.record.Error = cmp.Or(message, reason)
		return a
	}
	a.record.Message, a.record.Truncated = message, strings.Contains(message, ", truncated: ")
	return a
}

// continueArchive observes the Job that archives logs, or creates it, perhaps again: it writes the same files.
func continueArchive(f *facts, status *v1alpha1.SequentialJobStatus) archive {
	a := archive{record: status.Archive.DeepCopy(), notes: f.newNotes()}
	name, started := archiveJobName(f.SequentialJob, a.record.Run), ptr.Deref(a.record.StartTime, metav1.Time{})
	isOverdue := a.timer.HasReached(started.Add(archiveDeadline))
	job, known := f.Answers.JobsByName[name]
	if observed := findJobNamed(f.archiveJobs, name); !known && observed != nil {
		job, known = observed, true
	}
	refusal := f.archiveRefusal
	switch {
	case !known:
		a.question = &Question{JobNamed: name}
	case job != nil && IsTerminal(job):
		pods, listed := f.Answers.PodsByJob[job.UID]
		failure, condition := failureMessage(pods), decision.FindEndCondition(job)
		switch {
		case !listed:
			a.question = &Question{PodsOf: job}
		case condition.Type == batchv1.JobComplete:
			return a.withEnd(f, "", archiveSummary(pods))
		case failure == "" && a.record.Message != "": // why its Pod did not start
			return a.withEnd(f, v1alpha1.ReasonArchiveJobFailed, decision.FormatReason(condition.Message, a.record.Message))
		default:
			return a.withEnd(f, v1alpha1.ReasonArchiveJobFailed, cmp.Or(failure, condition.Message))
		}
	case isOverdue:
		if job != nil {
			a.deletions = append(a.deletions, job)
		}
		return a.withEnd(f, v1alpha1.ReasonDeadlineExceeded, decision.FormatReason(fmt.Sprintf("not archived within %s", archiveDeadline), a.record.Message))
	case job != nil && !job.DeletionTimestamp.IsZero():
	case job != nil && runningSince(withoutDeleted(podsOf(f, job))) != nil:
		a.record.Reason, a.record.Message = "", ""
	case job != nil:
		problem, notes := findStartProblem(f, &a.record.Explanation, job)
		a.notes = a.and(notes)
		if problem != nil {
			a.record.Explanation = problem.explanation(&a.record.Explanation)
		}
	case f.spec.Archive == nil:
		return a.withEnd(f, v1alpha1.ReasonJobLost, "Job "+name+" does not exist, and spec.archive was removed")
	case refusal != nil && !canRetry(refusal):
		return a.withEnd(f, v1alpha1.ReasonJobRejected, refusal.Message)
	case refusal != nil:
		a.record.Reason = v1alpha1.ReasonQuotaExceeded
		if refusal.Class == decision.AlreadyExists {
			a.record.Reason = v1alpha1.ReasonNameTaken
		}
		a.record.Message = decision.TruncateMessage(refusal.Message, maxMessageBytes)
		a.timer.RequeueWithin(min(max(f.Now.Sub(started.Time), minBlockedRetry), maxBlockedRetry))
	default:
		return a.withJob(f, status)
	}
	return a
}

// archiveSummary returns the report of the Pod; empty if unknown.
func archiveSummary(pods []corev1.Pod) string {
	pod := newestPod(pods, corev1.PodSucceeded)
	if pod == nil {
		return ""
	}
	if terminated := containerStatus(pod, archiveContainer).State.Terminated; terminated != nil {
		return strings.TrimSpace(terminated.Message)
	}
	return ""
}

// keepsForArchive reports whether the logs of an ended Job are not archived yet.
func keepsForArchive(f *facts, archive *v1alpha1.SequenceArchiveStatus, job *batchv1.Job) bool {
	run, known := runOf(job)
	if f.spec.Archive == nil || !known {
		return false
	}
	return archive == nil || run > archive.Run || run == archive.Run && archive.CompletionTime == nil
}

const (
	archivePart      = "archive"
	archiveContainer = "archive"
	// archiveBackoffLimit is the backoffLimit of the Job: a store or a node can be unavailable for a moment.
	archiveBackoffLimit = 3
	// maxArchivedJobs limits the Jobs of a run whose logs are archived, because each is an argument of the container.
	maxArchivedJobs = 1000
	// maxArchivedAttempts is the highest attempt of a step that is distinguished.
	maxArchivedAttempts = 1000

	archiveStoreVolume     = "store"
	archiveClaimPath       = "/logs"
	archiveCredentialsPath = "/etc/archive"
	archiveTempVolume      = "tmp"
	archiveTempPath        = "/tmp"
)

func archiveJobName(sj *v1alpha1.SequentialJob, run int32) string {
	return childName(sj.Name, archivePart, fmt.Sprintf("%s/%d/%s", sj.UID, run, archivePart))
}

// archivePath returns the directory of a run. The UID distinguishes SequentialJobs with the same name.
func archivePath(sj *v1alpha1.SequentialJob, run int32) string {
	return path.Join(sj.Namespace, sj.Name, string(sj.UID), fmt.Sprintf("run-%d", run))
}

// archivedJobs returns the Jobs of a run as "step/attempt/UID", by creation, then Jobs that only the status has, so that the archive shows
// that their logs are lost. An attempt is 0 if it is unknown. It returns nil if no Job exists.
func archivedJobs(f *facts, status *v1alpha1.SequentialJobStatus, run int32) []string {
	observed := slices.DeleteFunc(slices.Clone(f.Jobs), func(job *batchv1.Job) bool {
		of, known := runOf(job)
		return !known || of != run
	})
	if len(observed) == 0 {
		return nil
	}
	slices.SortStableFunc(observed, func(a, b *batchv1.Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	jobs := make([]string, 0, len(observed))
	add := func(step string, attempt int32, uid types.UID) {
		jobs = append(jobs, fmt.Sprintf("%s/%d/%s", step, attempt, uid))
	}
	// The name of a Job is a hash, so the attempt is found by trying. last is the last attempt of each step that was tried.
	attempts, last := map[string]int32{}, map[string]int32{}
	for _, job := range observed {
		step := job.Labels[v1alpha1.LabelStep]
		for attempts[job.Name] == 0 && last[step] < maxArchivedAttempts {
			last[step]++
			attempts[jobName(f.SequentialJob, run, step, last[step])] = last[step]
		}
		add(step, attempts[job.Name], job.UID)
	}
	for i := range status.Steps {
		step := &status.Steps[i]
		isObserved := slices.ContainsFunc(observed, func(job *batchv1.Job) bool { return job.UID == step.JobUID })
		if step.Run == run && step.JobUID != "" && !isObserved {
			add(step.Name, step.Attempt, step.JobUID)
		}
	}
	return jobs
}

// newArchiveJob returns the Job that archives the logs of a run. It has the permissions of a user's ServiceAccount,
// because the operator can read neither logs nor the credentials of the store.
func newArchiveJob(sj *v1alpha1.SequentialJob, run int32, image string, jobs []string) *batchv1.Job {
	labels := childLabels(sj)
	labels[v1alpha1.LabelArchive] = "true"
	decision.SetScheduleLabel(labels, sj)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            archiveJobName(sj, run),
			Namespace:       sj.Namespace,
			Labels:          labels,
			Annotations:     map[string]string{v1alpha1.AnnotationRun: strconv.Itoa(int(run))},
			OwnerReferences: decision.ControllerReferences("SequentialJob", sj),
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:          new(int32(archiveBackoffLimit)),
			ActiveDeadlineSeconds: new(int64(archiveActiveSeconds)),
			PodReplacementPolicy:  new(batchv1.Failed),
			PodFailurePolicy:      podFailurePolicy(&v1alpha1.StepOptions{}, corev1.RestartPolicyNever),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       newArchivePod(sj, run, image, jobs),
			},
		},
	}
}

func newArchivePod(sj *v1alpha1.SequentialJob, run int32, image string, jobs []string) corev1.PodSpec {
	args := []string{"archive-logs", "--namespace=" + sj.Namespace, "--sequence-uid=" + string(sj.UID), "--path=" + archivePath(sj, run)}
	store := corev1.Volume{Name: archiveStoreVolume}
	mount := corev1.VolumeMount{Name: archiveStoreVolume, MountPath: archiveClaimPath}
	if s3 := sj.Spec.Archive.S3; s3 != nil {
		args = append(args, decision.BucketFlags(s3, archiveCredentialsPath)...)
		store.Secret = &corev1.SecretVolumeSource{SecretName: s3.SecretRef.Name, DefaultMode: new(int32(0o440))}
		mount = corev1.VolumeMount{Name: archiveStoreVolume, MountPath: archiveCredentialsPath, ReadOnly: true}
	} else if claim := sj.Spec.Archive.ClaimRef; claim != nil {
		args = append(args, "--claim="+archiveClaimPath)
		store.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}
	}
	if omitted := len(jobs) - maxArchivedJobs; omitted > 0 {
		jobs = jobs[omitted:] // the oldest: Jobs of failed attempts
		args = append(args, "--omitted-jobs="+strconv.Itoa(omitted))
	}
	for _, job := range jobs {
		args = append(args, "--job="+job)
	}
	pod := corev1.PodSpec{
		ServiceAccountName:           sj.Spec.Archive.ServiceAccountName,
		AutomountServiceAccountToken: new(true),
		EnableServiceLinks:           new(false),
		RestartPolicy:                corev1.RestartPolicyNever,
		SecurityContext:              &corev1.PodSecurityContext{FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch)},
		Containers: []corev1.Container{{
			Name: archiveContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/session-runner"}, Args: args,
			Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "110MiB"}, {Name: "TMPDIR", Value: archiveTempPath}},
			Resources: corev1.ResourceRequirements{
				Requests: archiveResources("10m", "32Mi", "128Mi"), Limits: archiveResources("500m", "128Mi", "256Mi"),
			},
			SecurityContext: &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)},
			VolumeMounts:    []corev1.VolumeMount{mount, {Name: archiveTempVolume, MountPath: archiveTempPath}},
		}},
		Volumes: []corev1.Volume{store, {Name: archiveTempVolume, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("192Mi"))},
		}}},
	}
	restrictPod(&pod)
	return pod
}

func archiveResources(cpu, memory, storage string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceEphemeralStorage: resource.MustParse(storage),
	}
}
