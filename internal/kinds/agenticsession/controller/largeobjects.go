package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimSession is a cache transform. A trimmed session keeps the fields that decisions on other sessions read: its user, its
// SessionRunner, its workspace and its status.
var TrimSession = kube.TrimLarge(isLarge, func(s *v1alpha1.AgenticSession) {
	spec := &s.Spec
	spec.Prompt, spec.Repos, spec.Agent, spec.EnvironmentVariables = "", nil, v1alpha1.SessionAgent{}, nil
	if spec.UserContext != nil {
		spec.UserContext.Groups = nil
	}
})

// isLarge reports whether a session is too large for the cache. The other fields are short.
func isLarge(s *v1alpha1.AgenticSession) bool {
	spec := &s.Spec
	size := len(spec.Prompt) + kube.SizeOf(spec.EnvironmentVariables)
	for i := range spec.Repos {
		size += len(spec.Repos[i].URL) + len(spec.Repos[i].Branch)
	}
	for name, server := range spec.Agent.MCPServers.Custom {
		size += len(name) + len(server.Raw)
	}
	for _, name := range spec.Agent.MCPServers.Disabled {
		size += len(name)
	}
	if spec.UserContext != nil {
		for _, group := range spec.UserContext.Groups {
			size += len(group)
		}
	}
	return size > kube.LargeBytes
}
