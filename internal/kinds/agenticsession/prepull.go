package agenticsession

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// LabelRunnerUID of a DaemonSet that pulls images is the UID of the SessionRunner.
	LabelRunnerUID = v1alpha1.Prefix + "sessionrunner-uid"

	prepullVolume  = "program"
	prepullPath    = "/prepull"
	prepullProgram = "/session-runner"
	// prepullGracePeriodSeconds is short, because the Pods do no work.
	prepullGracePeriodSeconds = 1
)

// PrepullName returns the name of the DaemonSet that pulls the images of a SessionRunner.
func PrepullName(runner string) string { return childObjectName(runner, "prepull") }

// NewPrepull returns the DaemonSet whose Pods pull the images of a SessionRunner on the nodes that may run its sessions. Its
// containers run session-runner from the operator's image, and nothing of the pulled images.
func NewPrepull(runner *v1alpha1.SessionRunner, operatorImage string) *appsv1.DaemonSet {
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, LabelRunnerUID: string(runner.UID)}
	return &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{
			Name: PrepullName(runner.Name), Namespace: runner.Namespace, Labels: labels, OwnerReferences: decision.ControllerReferences("SessionRunner", runner),
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelRunnerUID: string(runner.UID)}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromString("100%"))},
			},
			RevisionHistoryLimit: new(int32(0)),
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: prepullPodSpec(runner, operatorImage)},
		},
	}
}

func prepullPodSpec(runner *v1alpha1.SessionRunner, operatorImage string) corev1.PodSpec {
	spec := &runner.Spec
	user := spec.RunAsUser
	if user == nil {
		user = new(int64(defaultFSGroup)) // the program needs no user of the images
	}
	group := spec.RunAsGroup
	if group == nil {
		group = new(int64(defaultFSGroup))
	}
	copyProgram := prepullContainer("copy", operatorImage, prepullProgram, "--copy-to="+prepullPath)
	copyProgram.VolumeMounts[0].ReadOnly = false
	pod := corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: new(int64(prepullGracePeriodSeconds)),
		RuntimeClassName:              spec.RuntimeClassName, HostUsers: spec.HostUsers, PriorityClassName: spec.PriorityClassName,
		NodeSelector: maps.Clone(spec.NodeSelector),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: user, RunAsGroup: group, FSGroup: group,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes:        []corev1.Volume{emptyDirVolume(prepullVolume, prepullResources.Limits)},
		InitContainers: []corev1.Container{copyProgram},
		Containers:     []corev1.Container{prepullContainer("wait", operatorImage, prepullProgram, "--wait")},
	}
	for i, image := range prepulledImages(spec) {
		c := prepullContainer(fmt.Sprintf("image-%d", i), image, prepullPath+prepullProgram)
		c.ImagePullPolicy = spec.ImagePullPolicy
		pod.InitContainers = append(pod.InitContainers, c)
	}
	for i := range spec.Tolerations {
		pod.Tolerations = append(pod.Tolerations, *spec.Tolerations[i].DeepCopy())
	}
	for _, secret := range spec.ImagePullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: secret.Name})
	}
	hardenContainers(pod.InitContainers)
	hardenContainers(pod.Containers)
	return pod
}

// prepullResources are those of each container: there is one Pod on each node. A program that starts needs more CPU than
// one that waits.
var prepullResources = v1alpha1.SessionResources{Requests: resourceAmounts("10m", "32Mi", "32Mi"), Limits: resourceAmounts("500m", "64Mi", "32Mi")}

func prepullContainer(name, image, program string, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{program, "prepull"}, Args: args,
		Resources:    resourceRequirements(prepullResources),
		VolumeMounts: []corev1.VolumeMount{{Name: prepullVolume, MountPath: prepullPath, ReadOnly: true}},
	}
}

// prepulledImages returns all images that sessions of a SessionRunner can use, each once.
func prepulledImages(spec *v1alpha1.SessionRunnerSpec) []string {
	images := append([]string{spec.Image}, spec.AllowedImages...)
	for i := range spec.Sidecars {
		images = append(images, spec.Sidecars[i].Image)
	}
	if spec.Git != nil {
		images = append(images, spec.Git.Image)
	}
	if spec.Archive != nil {
		images = append(images, spec.Archive.Image)
	}
	var once []string
	for _, image := range images {
		if image != "" && !slices.Contains(once, image) {
			once = append(once, image)
		}
	}
	return once
}
