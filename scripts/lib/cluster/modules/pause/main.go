// First process of a pod's sandbox and of a node: reaps orphans, ends when it is told to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	heard := make(chan os.Signal, 16)
	signal.Notify(heard, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for got := range heard {
		if got != syscall.SIGCHLD {
			return
		}
		for {
			if ended, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); ended <= 0 {
				break
			}
		}
	}
}
