package agenticsession

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// maxEnvironmentBytes is the maximum size of the names and values of a session's variables, which must fit into a
	// Secret and into a process's environment.
	maxEnvironmentBytes = 256 << 10
	// maxMCPServersBytes is the maximum size of mcpServers as JSON.
	maxMCPServersBytes = 64 << 10
)

// Environment variables that a session cannot set.
var (
	reservedPrefixes = []string{v1alpha1.SessionEnvPrefix, v1alpha1.WorkerEnvPrefix, "KUBERNETES_", "LD_"}
	reservedNames    = []string{"PATH", homeVariable, tempVariable}
)

// Validate returns errors that do not depend on the SessionRunner and that the CRD's rules cannot
// express.
func Validate(s *v1alpha1.AgenticSession) field.ErrorList {
	spec, at := &s.Spec, field.NewPath("spec")
	errs := validateEnvironment(spec, at)
	errs = append(errs, validateEnvFrom(spec.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, validateSecretMounts(spec.SecretMounts, at.Child("secretMounts"))...)
	seen := map[string]bool{}
	for i := range spec.Repos {
		name := repoDirectory(&spec.Repos[i])
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("repos").Index(i).Child("name"), name))
		}
		seen[name] = true
	}
	if spec.Resources != nil {
		errs = append(errs, validateResources(spec.Resources, at.Child("resources"))...)
	}
	if raw, err := json.Marshal(spec.Agent.MCPServers); err != nil || len(raw) > maxMCPServersBytes { // it was decoded from JSON
		errs = append(errs, field.TooLong(at.Child("agent", "mcpServers"), "", maxMCPServersBytes))
	}
	return errs
}

func validateEnvironment(spec *v1alpha1.AgenticSessionSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, name := range sortedKeys(spec.EnvironmentVariables) {
		value := spec.EnvironmentVariables[name]
		size += len(name) + len(value)
		if isReservedVariable(name) { // an older CRD may not reject it
			errs = append(errs, field.Forbidden(at.Child("environmentVariables").Key(name), "the name is reserved"))
		}
		if strings.ContainsRune(string(value), 0) {
			errs = append(errs, field.Invalid(at.Child("environmentVariables").Key(name), "", "the value must not contain a NUL character"))
		}
	}
	if size > maxEnvironmentBytes {
		errs = append(errs, field.TooLong(at.Child("environmentVariables"), "", maxEnvironmentBytes))
	}
	return errs
}

func isReservedVariable(name string) bool {
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(reservedNames, name)
}

func validateEnvFrom(sources []corev1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		source, at := &sources[i], at.Index(i)
		if (source.SecretRef == nil) == (source.ConfigMapRef == nil) {
			errs = append(errs, field.Invalid(at, "", "set either secretRef or configMapRef"))
		}
		if source.SecretRef != nil {
			errs = append(errs, validateSecretName(source.SecretRef.Name, at.Child("secretRef", "name"))...)
		}
		if source.ConfigMapRef != nil {
			errs = append(errs, validateName(source.ConfigMapRef.Name, at.Child("configMapRef", "name"))...)
		}
		if source.Prefix != "" && isReservedVariable(source.Prefix) {
			errs = append(errs, field.Invalid(at.Child("prefix"), source.Prefix, "the prefix is reserved"))
		}
	}
	return errs
}

func validateSecretMounts(mounts []v1alpha1.SecretMount, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range mounts {
		mount := &mounts[i]
		errs = append(errs, validateSecretName(mount.Name, at.Index(i).Child("name"))...)
		directory := secretMountPath(mount)
		if path.Dir(directory) != secretsPath || path.Clean(directory) != directory {
			errs = append(errs, field.Invalid(at.Index(i).Child("mountPath"), directory, "must be a directory in "+secretsPath))
		}
		if seen[directory] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("mountPath"), directory))
		}
		seen[directory] = true
	}
	return errs
}

// validateSecretName rejects the inputs Secrets of sessions, which only their runners may read.
func validateSecretName(name string, at *field.Path) field.ErrorList {
	if inputsNamePattern.MatchString(name) {
		return field.ErrorList{field.Forbidden(at, "the inputs Secret of a session is only for its runner")}
	}
	return validateName(name, at)
}

// validateName rejects names that no Secret, ConfigMap or PersistentVolumeClaim can have.
func validateName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for _, message := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(at, name, message))
	}
	return errs
}

func repoDirectory(repo *v1alpha1.SessionRepo) string {
	if repo.Name != "" {
		return repo.Name
	}
	url := strings.TrimRight(string(repo.URL), "/")
	if i := strings.LastIndexAny(url, "/:"); i >= 0 {
		url = url[i+1:]
	}
	return strings.TrimSuffix(url, ".git")
}
