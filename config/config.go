// Package config has the manifests of an installation, with which the plugin compares the installation in a cluster.
package config

import "embed"

// Manifests are the CustomResourceDefinitions, webhooks, admission policies and permissions of this version.
//
//go:embed crd/bases admission/policies.yaml webhook/webhooks.yaml components/admission-policy/policy.yaml
//go:embed rbac/controllers/*/role.yaml rbac/finalizers/*/role.yaml rbac/operator
var Manifests embed.FS
