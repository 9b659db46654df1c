package agenticsession

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

var (
	// reservedMetadataPrefixes and reservedMetadataKeys are labels and annotations that a SessionRunner cannot set,
	// because the operator and the Job controller use them, or because they change the isolation of containers.
	reservedMetadataPrefixes = []string{v1alpha1.Prefix, "batch.kubernetes.io/", "container.apparmor.security.beta.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/"}
	reservedMetadataKeys     = []string{v1alpha1.LabelManagedBy, "job-name", "controller-uid"}
	// reservedPaths are the directories of the operator, and directories without which no container works.
	reservedPaths = []string{inputsPath, workspacePath, secretsPath, homePath, tempPath, gitPath, archivePath, modelPath, path.Dir(tokenPath), caBundlePath, "/dev", "/proc", "/sys"}
	// tokenFilePattern matches the names of files with tokens.
	tokenFilePattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
)

const (
	minTokenSeconds, maxTokenSeconds = 600, 86400
	maxUserID                        = 2147483647
)

var podPath = field.NewPath("spec", "template", "spec")

// runnerValidations validate a SessionRunner. The CRD rejects some of these errors, but an older CRD may not.
var runnerValidations = []func(*v1alpha1.SessionRunner) field.ErrorList{
	sessionrunner.ValidateRunner,
	validateMetadata,
	validateContainers,
	validateVolumes,
	validatePodFields,
	validateRunnerVariables,
	validateMaxResources,
	validateGit,
	validateArchive,
	validateModel,
}

// ValidateRunner returns the errors of a SessionRunner. With any of them, no session can start.
func ValidateRunner(runner *v1alpha1.SessionRunner) field.ErrorList {
	if decision.IsTooLarge(runner, runner.Spec) {
		return field.ErrorList{field.Forbidden(field.NewPath("spec"), decision.TooLargeMessage)}
	}
	var errs field.ErrorList
	for _, validate := range runnerValidations {
		errs = append(errs, validate(runner)...)
	}
	return errs
}

func validateMetadata(runner *v1alpha1.SessionRunner) field.ErrorList {
	template, at := templateOf(&runner.Spec), field.NewPath("spec", "template", "metadata")
	errs := metav1validation.ValidateLabels(template.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, at.Child("annotations"))...)
	errs = append(errs, reservedKeys(template.Labels, at.Child("labels"))...)
	errs = append(errs, reservedKeys(template.Annotations, at.Child("annotations"))...)
	if m := runner.Spec.JobMetadata; m != nil {
		at := field.NewPath("spec", "jobMetadata")
		errs = append(errs, metav1validation.ValidateLabels(m.Labels, at.Child("labels"))...)
		errs = append(errs, apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))...)
		errs = append(errs, reservedKeys(m.Labels, at.Child("labels"))...)
		errs = append(errs, reservedKeys(m.Annotations, at.Child("annotations"))...)
	}
	return errs
}

func reservedKeys(metadata map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range sortedKeys(metadata) {
		isReserved := slices.Contains(reservedMetadataKeys, key) ||
			slices.ContainsFunc(reservedMetadataPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		if isReserved {
			errs = append(errs, field.Forbidden(at.Key(key), "the key is reserved"))
		}
	}
	return errs
}

// validateContainers validates the containers of the template, without the fields that do not exist.
func validateContainers(runner *v1alpha1.SessionRunner) field.ErrorList {
	spec := &runner.Spec
	if spec.Template == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range spec.Template.Spec.Containers {
		c, at := &spec.Template.Spec.Containers[i], podPath.Child("containers").Index(i)
		if c.Name != v1alpha1.RunnerContainer || i > 0 {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, "the only container is named "+v1alpha1.RunnerContainer+"; define sidecars as initContainers with restartPolicy: Always"))
		}
		errs = append(errs, validateResources(&c.Resources, at.Child("resources"))...)
		errs = append(errs, validateMounts(spec, c, at.Child("volumeMounts"))...)
	}
	// The reports of the operator's containers are found by their names, also in Pods of an earlier SessionRunner.
	taken := []string{v1alpha1.RunnerContainer, checkContainer, GitContainer, ArchiveContainer, ModelContainer}
	for i := range spec.Template.Spec.InitContainers {
		c, at := &spec.Template.Spec.InitContainers[i], podPath.Child("initContainers").Index(i)
		if slices.Contains(taken, c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, "another container of the Pod has this name, or can have it"))
		}
		taken = append(taken, c.Name)
		if c.Image == "" {
			errs = append(errs, field.Required(at.Child("image"), ""))
		}
		if ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
			errs = append(errs, field.NotSupported(at.Child("restartPolicy"), ptr.Deref(c.RestartPolicy, ""), []corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyAlways}))
		}
		errs = append(errs, validateResources(&c.Resources, at.Child("resources"))...)
		errs = append(errs, validateMounts(spec, c, at.Child("volumeMounts"))...)
	}
	return errs
}

// validateMounts validates the mounts of a container. Only sidecars mount the workspace: the runner always has it.
func validateMounts(spec *v1alpha1.SessionRunnerSpec, c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	var taken []string
	for i := range c.VolumeMounts {
		mount, at := &c.VolumeMounts[i], at.Index(i)
		isWorkspace := mount.Name == workspaceVolume
		isVolume := slices.ContainsFunc(spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		switch {
		case isWorkspace && c.Name == v1alpha1.RunnerContainer:
			errs = append(errs, field.Invalid(at.Child("name"), mount.Name, "the runner always has the workspace at "+workspacePath))
		case !isWorkspace && !isVolume:
			errs = append(errs, field.NotFound(at.Child("name"), mount.Name))
		}
		if !path.IsAbs(mount.MountPath) || path.Clean(mount.MountPath) != mount.MountPath {
			errs = append(errs, field.Invalid(at.Child("mountPath"), mount.MountPath, "it is not an absolute path without . and .."))
		}
		for _, other := range slices.Concat(reservedPaths, taken) {
			if (isWithin(mount.MountPath, other) || isWithin(other, mount.MountPath)) && (!isWorkspace || other != workspacePath) {
				errs = append(errs, field.Invalid(at.Child("mountPath"), mount.MountPath, "it overlaps with "+other))
			}
		}
		taken = append(taken, mount.MountPath)
	}
	return errs
}

// isWithin reports whether a path is a directory or in it.
func isWithin(inner, outer string) bool {
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}

func validateVolumes(runner *v1alpha1.SessionRunner) field.ErrorList {
	if runner.Spec.Template == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range runner.Spec.Template.Spec.Volumes {
		volume, at := &runner.Spec.Template.Spec.Volumes[i], podPath.Child("volumes").Index(i)
		if volume.Name == workspaceVolume {
			errs = append(errs, field.Invalid(at.Child("name"), volume.Name, "the volume "+workspaceVolume+" exists by itself"))
		}
		for _, message := range validation.IsDNS1123Label(runnerVolumePrefix + volume.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), volume.Name, message+", with the prefix "+runnerVolumePrefix))
		}
		sources := 0
		for _, given := range []bool{volume.ConfigMap != nil, volume.Secret != nil, volume.PersistentVolumeClaim != nil, volume.Projected != nil} {
			if given {
				sources++
			}
		}
		if sources != 1 {
			errs = append(errs, field.Invalid(at, volume.Name, "set exactly one of configMap, secret, persistentVolumeClaim and projected"))
		}
		switch {
		case volume.ConfigMap != nil:
			errs = append(errs, validateName(volume.ConfigMap.Name, at.Child("configMap", "name"))...)
		case volume.Secret != nil:
			errs = append(errs, validateName(volume.Secret.SecretName, at.Child("secret", "secretName"))...)
		case volume.PersistentVolumeClaim != nil:
			errs = append(errs, validateName(volume.PersistentVolumeClaim.ClaimName, at.Child("persistentVolumeClaim", "claimName"))...)
		}
		if volume.Projected != nil {
			errs = append(errs, validateTokens(volume.Projected.Sources, at.Child("projected", "sources"))...)
		}
	}
	return errs
}

// validateTokens refuses a token without an audience: it would be for the API server.
func validateTokens(sources []corev1.VolumeProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		token, at := sources[i].ServiceAccountToken, at.Index(i).Child("serviceAccountToken")
		if token == nil {
			errs = append(errs, field.Required(at, "a projected volume has no other sources"))
			continue
		}
		if token.Audience == "" {
			errs = append(errs, field.Required(at.Child("audience"), "the token would be for the API server"))
		}
		if !tokenFilePattern.MatchString(token.Path) {
			errs = append(errs, field.Invalid(at.Child("path"), token.Path, "it is not the name of a file"))
		}
		if seconds := token.ExpirationSeconds; seconds != nil && (*seconds < minTokenSeconds || *seconds > maxTokenSeconds) {
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds, fmt.Sprintf("it must be from %d to %d", minTokenSeconds, maxTokenSeconds)))
		}
	}
	return errs
}

func validatePodFields(runner *v1alpha1.SessionRunner) field.ErrorList {
	pod := &templateOf(&runner.Spec).Spec
	errs := metav1validation.ValidateLabels(pod.NodeSelector, podPath.Child("nodeSelector"))
	for _, name := range []struct{ field, value string }{
		{"runtimeClassName", ptr.Deref(pod.RuntimeClassName, "")}, {"serviceAccountName", pod.ServiceAccountName}, {"priorityClassName", pod.PriorityClassName},
	} {
		if name.value != "" {
			errs = append(errs, validateName(name.value, podPath.Child(name.field))...)
		}
	}
	if sc := pod.SecurityContext; sc != nil {
		if id := sc.RunAsUser; id != nil && (*id < 1 || *id > maxUserID) {
			errs = append(errs, field.Invalid(podPath.Child("securityContext", "runAsUser"), *id, fmt.Sprintf("it must be from 1 to %d", maxUserID)))
		}
		if id := sc.RunAsGroup; id != nil && (*id < 1 || *id > maxUserID) {
			errs = append(errs, field.Invalid(podPath.Child("securityContext", "runAsGroup"), *id, fmt.Sprintf("it must be from 1 to %d", maxUserID)))
		}
	}
	if runner.Spec.Limits.InactivityTimeout != nil && !runner.Spec.ActivityLease {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "limits", "inactivityTimeout"), "it requires activityLease"))
	}
	if pod.ServiceAccountName != "" && runner.Spec.ActivityLease { // the Lease's token would have all permissions of this account
		errs = append(errs, field.Forbidden(podPath.Child("serviceAccountName"), "activityLease needs a ServiceAccount for each session"))
	}
	return errs
}

// validateRunnerVariables refuses variables that the operator sets.
func validateRunnerVariables(runner *v1alpha1.SessionRunner) field.ErrorList {
	var errs field.ErrorList
	for i, variable := range templateOf(&runner.Spec).Spec.Containers[0].Env {
		isOperators := slices.Contains(operatorVariables, variable.Name) || sessionrunner.UsesProxy(runner) && slices.Contains(proxyVariables, variable.Name)
		if isOperators {
			errs = append(errs, field.Forbidden(podPath.Child("containers").Index(0).Child("env").Index(i).Child("name"), variable.Name+" is set by the operator"))
		}
	}
	return errs
}

// validateMaxResources refuses resources of the runner that exceed maxResources.
func validateMaxResources(runner *v1alpha1.SessionRunner) field.ErrorList {
	var errs field.ErrorList
	resources, at := &templateOf(&runner.Spec).Spec.Containers[0].Resources, podPath.Child("containers").Index(0).Child("resources")
	check := func(list corev1.ResourceList, at *field.Path) {
		for _, name := range sortedKeys(list) {
			amount := list[name]
			if limit, limited := runner.Spec.Limits.MaxResources[name]; limited && amount.Cmp(limit) > 0 {
				errs = append(errs, field.Invalid(at.Key(string(name)), amount.String(), "it exceeds limits.maxResources"))
			}
		}
	}
	check(resources.Requests, at.Child("requests"))
	check(resources.Limits, at.Child("limits"))
	return errs
}

func validateGit(runner *v1alpha1.SessionRunner) field.ErrorList {
	git := runner.Spec.Git
	if git == nil {
		return nil
	}
	errs := validateResources(&git.Resources, field.NewPath("spec", "git", "resources"))
	if git.SecretRef == nil {
		return errs
	}
	if len(git.Repositories) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec", "git", "repositories"), "they get the credentials of secretRef"))
	}
	if _, err := sessiongit.ParseScope(git.Repositories); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "git", "repositories"), "", err.Error()))
	}
	return append(errs, secretErrors(&runner.Spec, git.SecretRef.Name, []string{"password", "ssh-privatekey", "githubAppPrivateKey"}, "the agent could read the credentials of git")...)
}

func validateArchive(runner *v1alpha1.SessionRunner) field.ErrorList {
	spec, at := &runner.Spec, field.NewPath("spec", "archive")
	archive := spec.Archive
	if archive == nil {
		return nil
	}
	errs := validateResources(&archive.Resources, at.Child("resources"))
	if (archive.ClaimRef == nil) == (archive.S3 == nil) {
		return append(errs, field.Invalid(at, "", "set exactly one of claimRef and s3"))
	}
	if archive.S3 != nil {
		keys := []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
		return append(errs, secretErrors(spec, archive.S3.SecretRef.Name, keys, "the agent could read the credentials of the archive")...)
	}
	for i, volume := range templateOf(spec).Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil && claim.ClaimName == archive.ClaimRef.Name {
			errs = append(errs, field.Forbidden(podPath.Child("volumes").Index(i), "the agent could read the archive in the claim "+claim.ClaimName))
		}
	}
	return errs
}

// secretErrors returns how an agent could read the credentials in a Secret that only another container may read. keys has the
// keys of the credentials; other keys of the Secret may be for the agent.
func secretErrors(spec *v1alpha1.SessionRunnerSpec, secret string, keys []string, detail string) field.ErrorList {
	var errs field.ErrorList
	detail += " in Secret " + secret
	isCredential := func(key string) bool { return slices.Contains(keys, key) }
	if allowed := findSource(spec.Allowed.Secrets, secret); allowed != nil && (len(allowed.Keys) == 0 || slices.ContainsFunc(allowed.Keys, isCredential)) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "allowed", "secrets").Key(secret), detail))
	}
	pod := &templateOf(spec).Spec
	for i := range pod.Volumes {
		if source := pod.Volumes[i].Secret; source != nil && source.SecretName == secret {
			errs = append(errs, field.Forbidden(podPath.Child("volumes").Index(i), detail))
		}
	}
	for i, variable := range pod.Containers[0].Env {
		if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Name == secret && isCredential(from.SecretKeyRef.Key) {
			errs = append(errs, field.Forbidden(podPath.Child("containers").Index(0).Child("env").Index(i), detail))
		}
	}
	return errs
}
