package sequentialjob

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

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

type archivedJob struct {
	step string
	// attempt is 0 if unknown.
	attempt int32
	uid     types.UID
}

func (j archivedJob) String() string { return fmt.Sprintf("%s/%d/%s", j.step, j.attempt, j.uid) }

// archivedJobs returns the Jobs of a run, by creation, then Jobs that only the status has, so that the archive shows
// that their logs are lost. It returns nil if no Job exists.
func archivedJobs(f *facts, status *v1alpha1.SequentialJobStatus, run int32) []archivedJob {
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
	attempts := &attemptNumbers{sj: f.SequentialJob, run: run, byName: map[string]int32{}, next: map[string]int32{}}
	jobs := make([]archivedJob, 0, len(observed))
	for _, job := range observed {
		step := job.Labels[v1alpha1.LabelStep]
		jobs = append(jobs, archivedJob{step, attempts.of(step, job.Name), job.UID})
	}
	for i := range status.Steps {
		step := &status.Steps[i]
		if isKnown := slices.ContainsFunc(jobs, func(job archivedJob) bool { return job.uid == step.JobUID }); step.Run == run && step.JobUID != "" && !isKnown {
			jobs = append(jobs, archivedJob{step.Name, step.Attempt, step.JobUID})
		}
	}
	return jobs
}

// attemptNumbers finds the attempts of Jobs by name, which is a hash.
type attemptNumbers struct {
	sj     *v1alpha1.SequentialJob
	run    int32
	byName map[string]int32
	// next is the last attempt of each step in byName.
	next map[string]int32
}

// of returns the attempt whose Job has this name; 0 if it is not among the first maxArchivedAttempts.
func (a *attemptNumbers) of(step, name string) int32 {
	for a.byName[name] == 0 && a.next[step] < maxArchivedAttempts {
		a.next[step]++
		a.byName[jobName(a.sj, a.run, step, a.next[step])] = a.next[step]
	}
	return a.byName[name]
}

// newArchiveJob returns the Job that archives the logs of a run. It has the permissions of a user's ServiceAccount,
// because the operator can read neither logs nor the credentials of the store.
func newArchiveJob(sj *v1alpha1.SequentialJob, run int32, image string, jobs []archivedJob) *batchv1.Job {
	labels := childLabels(sj, archivePart)
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
				Spec:       newArchivePod(sj, image, archiveArguments(sj, run, jobs)),
			},
		},
	}
}

func archiveArguments(sj *v1alpha1.SequentialJob, run int32, jobs []archivedJob) []string {
	archive := sj.Spec.Archive
	args := []string{"archive-logs", "--namespace=" + sj.Namespace, "--sequence-uid=" + string(sj.UID), "--path=" + archivePath(sj, run)}
	if s3 := archive.S3; s3 != nil {
		args = append(args, decision.BucketFlags(s3, archiveCredentialsPath)...)
	} else {
		args = append(args, "--claim="+archiveClaimPath)
	}
	if omitted := len(jobs) - maxArchivedJobs; omitted > 0 {
		jobs = jobs[omitted:] // the oldest: Jobs of failed attempts
		args = append(args, "--omitted-jobs="+strconv.Itoa(omitted))
	}
	for _, job := range jobs {
		args = append(args, "--job="+job.String())
	}
	return args
}

func newArchivePod(sj *v1alpha1.SequentialJob, image string, args []string) corev1.PodSpec {
	store := corev1.Volume{Name: archiveStoreVolume}
	mount := corev1.VolumeMount{Name: archiveStoreVolume, MountPath: archiveClaimPath}
	if s3 := sj.Spec.Archive.S3; s3 != nil {
		store.Secret = &corev1.SecretVolumeSource{SecretName: s3.SecretRef.Name, DefaultMode: new(int32(0o440))}
		mount = corev1.VolumeMount{Name: archiveStoreVolume, MountPath: archiveCredentialsPath, ReadOnly: true}
	} else if claim := sj.Spec.Archive.ClaimRef; claim != nil {
		store.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}
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
