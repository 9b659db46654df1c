package modelproxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// tokenTimeout is how long a runner waits for the proxy to listen.
	tokenTimeout  = time.Minute
	tokenInterval = 20 * time.Millisecond
)

// Environment returns the variables with which agents call their model through the proxy, when it listens.
func Environment(ctx context.Context, directory, provider string) ([]string, error) {
	ctx, stop := context.WithTimeout(ctx, tokenTimeout)
	defer stop()
	for {
		token, err := os.ReadFile(filepath.Join(directory, TokenFile))
		if err == nil {
			return environment(provider, string(token)), nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the proxy of the model does not start: %w", err)
		case <-time.After(tokenInterval):
		}
	}
}

func environment(provider, token string) []string {
	switch provider {
	case "Anthropic":
		return []string{"ANTHROPIC_BASE_URL=" + URL, "ANTHROPIC_API_KEY=" + token}
	case "OpenAI":
		return []string{"OPENAI_BASE_URL=" + URL + "/v1", "OPENAI_API_KEY=" + token, "CODEX_API_KEY=" + token}
	case "Google":
		return []string{"GOOGLE_GEMINI_BASE_URL=" + URL, "GEMINI_API_KEY=" + token, "GOOGLE_GENERATIVE_AI_API_KEY=" + token}
	}
	return nil
}
