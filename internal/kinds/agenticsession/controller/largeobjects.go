package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimSession is a cache transform. A trimmed session keeps the fields that decisions on other sessions read: its user, its
// SessionRunner, its workspace and its status.
var TrimSession = kube.TrimLarge(isLarge, func(s *v1alpha1.AgenticSession) {
	s.Spec.Prompt, s.Spec.EnvironmentVariables, s.Spec.Agent.MCPServers = "", nil, v1alpha1.MCPServers{}
})

// isLarge reports whether a session is too large for the cache. The other fields are short.
func isLarge(s *v1alpha1.AgenticSession) bool {
	size := len(s.Spec.Prompt) + kube.SizeOf(s.Spec.EnvironmentVariables)
	for name, server := range s.Spec.Agent.MCPServers.Custom {
		size += len(name) + len(server.Raw)
	}
	return size > kube.LargeBytes
}
