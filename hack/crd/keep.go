package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// selection lists the fields of an embedded type of Kubernetes that exist in a CRD. The API server removes all others from a
// stored object, and a strict client gets an error for them. Paths are relative to the field, and pass through lists.
type selection struct {
	// keep has the fields that exist, with all fields below them.
	keep []string
	// limits are the greatest numbers of entries of lists and maps, and the greatest lengths of strings. Without them, validation
	// rules would be too expensive. [] is each entry of a list of strings.
	limits map[string]int64
}

// selections are the selections of all CRDs, by kind and path. The operator must copy only these fields.
var selections = map[string]map[string]selection{
	"AgenticSession": {"spec.resources": resources},
	"SessionRunner": {
		"spec.template":          sessionTemplate,
		"spec.network.egress.to": egressPeer,
		"spec.git.resources":     resources,
		"spec.archive.resources": resources,
	},
}

var resources = selection{
	keep:   []string{"limits", "requests"},
	limits: map[string]int64{"limits": 16, "requests": 16},
}

var egressPeer = selection{
	keep:   []string{"ipBlock", "namespaceSelector", "podSelector"},
	limits: map[string]int64{"ipBlock.cidr": 43, "ipBlock.except": 16, "ipBlock.except.[]": 43},
}

// sessionTemplate has the fields that cannot weaken the isolation of a session: every Pod satisfies the Pod Security Standard
// "restricted", and mounts no volume that the operator does not know.
var sessionTemplate = selection{
	keep: []string{
		"metadata.labels", "metadata.annotations",
		"spec.containers.name", "spec.containers.command", "spec.containers.args", "spec.containers.env", "spec.containers.imagePullPolicy",
		"spec.containers.resources.limits", "spec.containers.resources.requests",
		"spec.containers.volumeMounts.name", "spec.containers.volumeMounts.mountPath", "spec.containers.volumeMounts.readOnly",
		"spec.initContainers.name", "spec.initContainers.image", "spec.initContainers.command", "spec.initContainers.args",
		"spec.initContainers.env", "spec.initContainers.imagePullPolicy", "spec.initContainers.restartPolicy", "spec.initContainers.startupProbe",
		"spec.initContainers.resources.limits", "spec.initContainers.resources.requests",
		"spec.initContainers.volumeMounts.name", "spec.initContainers.volumeMounts.mountPath", "spec.initContainers.volumeMounts.readOnly",
		"spec.volumes.name",
		"spec.volumes.configMap.name", "spec.volumes.configMap.items.key", "spec.volumes.configMap.items.path", "spec.volumes.configMap.optional",
		"spec.volumes.secret.secretName", "spec.volumes.secret.items.key", "spec.volumes.secret.items.path", "spec.volumes.secret.optional",
		"spec.volumes.persistentVolumeClaim.claimName",
		"spec.volumes.projected.sources.serviceAccountToken.audience", "spec.volumes.projected.sources.serviceAccountToken.path",
		"spec.volumes.projected.sources.serviceAccountToken.expirationSeconds",
		"spec.imagePullSecrets", "spec.runtimeClassName", "spec.securityContext.runAsUser", "spec.securityContext.runAsGroup",
		"spec.serviceAccountName", "spec.hostUsers", "spec.nodeSelector", "spec.tolerations", "spec.priorityClassName",
	},
	limits: map[string]int64{
		"metadata.labels": 64, "metadata.annotations": 64,
		"spec.containers": 1, "spec.containers.command": 64, "spec.containers.args": 256, "spec.containers.env": 128,
		"spec.containers.resources.limits": 16, "spec.containers.resources.requests": 16, "spec.containers.volumeMounts": 24,
		"spec.initContainers": 8, "spec.initContainers.command": 64, "spec.initContainers.args": 256, "spec.initContainers.env": 128,
		"spec.initContainers.resources.limits": 16, "spec.initContainers.resources.requests": 16, "spec.initContainers.volumeMounts": 24,
		"spec.volumes": 24, "spec.volumes.configMap.items": 64, "spec.volumes.secret.items": 64, "spec.volumes.projected.sources": 8,
		"spec.imagePullSecrets": 16, "spec.nodeSelector": 32, "spec.tolerations": 32,
	},
}

// selectFields removes all fields from the schema of a kind that its selections do not list.
func selectFields(kind string, schema *apiextensionsv1.JSONSchemaProps) error {
	for _, path := range slices.Sorted(maps.Keys(selections[kind])) {
		selected := selections[kind][path]
		err := at(schema, strings.Split(path, "."), func(s *apiextensionsv1.JSONSchemaProps) error {
			if err := keepOnly(s, selected.keep); err != nil {
				return err
			}
			for limited, most := range selected.limits {
				if err := at(s, strings.Split(limited, "."), func(s *apiextensionsv1.JSONSchemaProps) error { return limit(s, most) }); err != nil {
					return fmt.Errorf("%s: %w", limited, err)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s.%s: %w", kind, path, err)
		}
	}
	return nil
}

// at changes the schema of the field at a path.
func at(s *apiextensionsv1.JSONSchemaProps, path []string, change func(*apiextensionsv1.JSONSchemaProps) error) error {
	switch {
	case len(path) == 0:
		return change(s)
	case path[0] == "[]":
		return at(elementSchema(s), path[1:], change)
	}
	object := elementSchema(s)
	property, found := object.Properties[path[0]]
	if !found {
		return fmt.Errorf("no field %s", path[0])
	}
	err := at(&property, path[1:], change)
	object.Properties[path[0]] = property
	return err
}

// keepOnly removes all fields of a schema but those at the paths.
func keepOnly(s *apiextensionsv1.JSONSchemaProps, paths []string) error {
	below := map[string][]string{}
	for _, path := range paths {
		name, rest, nested := strings.Cut(path, ".")
		below[name] = append(below[name], rest)
		if !nested && len(below[name]) > 1 || nested && slices.Contains(below[name], "") {
			return fmt.Errorf("%s is listed with fields below it", name)
		}
	}
	object := elementSchema(s)
	for name, paths := range below {
		property, found := object.Properties[name]
		if !found {
			return fmt.Errorf("no field %s", name)
		}
		if paths[0] == "" {
			continue
		}
		if err := keepOnly(&property, paths); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		object.Properties[name] = property
	}
	isRemoved := func(name string) bool { return below[name] == nil }
	maps.DeleteFunc(object.Properties, func(name string, _ apiextensionsv1.JSONSchemaProps) bool { return isRemoved(name) })
	object.Required = slices.DeleteFunc(object.Required, isRemoved)
	return nil
}

// elementSchema returns the schema of the entries of a list, and the schema itself of anything else.
func elementSchema(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s.Items != nil && s.Items.Schema != nil {
		return s.Items.Schema
	}
	return s
}

func limit(s *apiextensionsv1.JSONSchemaProps, most int64) error {
	switch {
	case s.Type == "string":
		s.MaxLength = &most
	case s.Type == "array":
		s.MaxItems = &most
	case s.AdditionalProperties != nil:
		s.MaxProperties = &most
	default:
		return fmt.Errorf("a value of the type %s has neither entries nor a length", s.Type)
	}
	return nil
}
