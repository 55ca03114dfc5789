/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  Saves and restores the progress report of a command.  The rollback of
 *	  a subtransaction ends the report, although the command continues.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pgstat.h"

#include "layout.h"

/*
 * Saves the progress of this backend, as shown in pg_stat_progress_vacuum and
 * similar views.
 */
void
bx_progress_save(BxProgress *progress)
{
	progress->command = PROGRESS_COMMAND_INVALID;
	if (MyBEEntry == NULL)
		return;
	progress->command = MyBEEntry->st_progress_command;
	progress->target = MyBEEntry->st_progress_command_target;
	memcpy(progress->params, MyBEEntry->st_progress_param,
		   sizeof(progress->params));
}

/* Restores the saved progress. */
void
bx_progress_restore(const BxProgress *progress)
{
	int			numbers[PGSTAT_NUM_PROGRESS_PARAM];

	if (progress->command == PROGRESS_COMMAND_INVALID)
		return;
	for (int i = 0; i < PGSTAT_NUM_PROGRESS_PARAM; i++)
		numbers[i] = i;
	pgstat_progress_start_command((ProgressCommandType) progress->command,
								  progress->target);
	pgstat_progress_update_multi_param(PGSTAT_NUM_PROGRESS_PARAM, numbers,
									   progress->params);
}
