package redisclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The words that the server's errors begin with, by class.
var prefixes = map[broker.ErrorClass][]string{
	broker.ClassUnauthorized: {"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR Client sent AUTH"},
	broker.ClassUnreachable:  {"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "BUSY ", "ERR max number of clients"},
	broker.ClassInvalid:      {"WRONGTYPE", "ERR unknown command", "ERR DB index", "ERR syntax"},
	broker.ClassNotFound:     {"NOGROUP", "ERR no such key"},
}

// ClassifyError gives an error its class, and tells what was being done.
func ClassifyError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if broker.ClassOf(err) != broker.ClassUnknown {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return broker.Errorf(broker.ClassUnreachable, "%s: %w", doing, err)
	}
	for class, words := range prefixes {
		for _, word := range words {
			if redis.HasErrorPrefix(err, word) || strings.HasPrefix(err.Error(), word) {
				return broker.Errorf(class, "%s: %w", doing, err)
			}
		}
	}
	return broker.ClassifyNetworkError(doing, err)
}
